// The kernels that Python may call: loops over rows, each row on one thread. Arguments are marked
// in / out; all of them were checked in Python (sizes, types, contiguity, index bounds).
#pragma once

#include <cstdint>

#include "dense_descent.hpp"
#include "row_job.hpp"
#include "rule_guarded.hpp"
#include "rule_newton.hpp"
#include "rule_paper.hpp"

// T is the type of the factors; the data may be wider, but for paper_rows and dense_rows, which
// also know nothing of constraints.
namespace klnmf {

// One half-step of "srcd": every row of x descends on its row problem. The value is that of each
// row where settings.want_value, the residual and the gap are those met before the step.
template <class T>
void guarded_rows(const RowJob<T>& job, const GuardedSettings& settings);

// Solves every row problem to its end; x is out alone where settings.cold. The residual and the gap
// are those met before the first Newton step. No value.
template <class T>
void newton_rows(const RowJob<T>& job, const NewtonSettings& settings);

// One half-step of "mu", with so many relaxed steps before the plain one. No value.
template <class T>
void multiplicative_rows(const RowJob<T>& job, int relaxed);

// One half-step of "srcd-paper". Neither value nor gap.
template <class T>
void paper_rows(const RowJob<T>& job, const PaperSettings& settings);

// One half-step of "ccd". In this job A is transposed, rank x n_rows. P (in/out) is the dense
// product, n_rows x n_cols of the first mode; with `by_columns` the rows of the data are the
// columns of P. Neither value nor gap.
template <class T>
void dense_rows(const RowJob<T>& job, const DenseSettings& settings, double* P, bool by_columns);

// f and, where wanted, the residual and the gap of every row at x (in, instead of job.x), in
// double.
template <class T>
void evaluate_rows(const RowJob<T>& job, const T* x, bool want_residual);

// Sums over blocks of this many rows, by row number, are what makes every total independent of
// threads and of how the rows are stored or distributed.
constexpr std::int64_t rows_per_sum = 4096;

// sums[k] (out) = sum_i factor_ik^power, for a power of 1 or 2.
template <class T>
void column_powers(const T* factor, int power, std::int64_t n_rows, int rank, int n_threads,
                   double* sums);

// sum_i values_i, in the same blocks.
double blocked_sum(const double* values, std::int64_t n_values);

// How many of the values are 0.
template <class T>
std::int64_t count_zeros(const T* values, std::int64_t size, int n_threads);

// target (out) = max(newest + weight (newest - previous), keep newest): extrapolated, but no entry
// that newest uses is lost (it might be the last cover of a nonzero), and no entry it does not use
// appears.
template <class T>
void extrapolate(const T* newest, const T* previous, std::int64_t size, double weight, double keep,
                 int n_threads, T* target);

} // namespace klnmf
