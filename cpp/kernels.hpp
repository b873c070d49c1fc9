// The kernels that Python may call: loops over rows, each row on one thread. Arguments are marked
// in / out; all of them were checked in Python (sizes, types, contiguity, index bounds).
#pragma once

#include <cstdint>

#include "dense_descent.hpp"
#include "row_constraints.hpp"
#include "rule_guarded.hpp"
#include "rule_newton.hpp"
#include "rule_paper.hpp"
#include "sparse_view.hpp"

// T is the type of the factors; the data may be wider, but for paper_rows and dense_rows; n_cols is
// the rows of the fixed factor. `constraints` (in) are what rows have of their own.
namespace klnmf {

// One half-step of "srcd": every row of x (in/out) descends on its row problem. `value` (out)
// receives f of each row where settings.want_value, `kkt` and `gap` (out) the residual and the gap
// met before the step.
template <class T>
void guarded_rows(const SparseRows<T>& data, const FixedFactor<T>& fixed, double l2,
                  std::int64_t n_cols, const RowConstraints& constraints,
                  const GuardedSettings& settings, int n_threads, T* x, double* value, double* kkt,
                  double* gap);

// Solves every row problem to its end: x is in/out, or out alone where settings.cold; `kkt` and
// `gap` (out) receive what was met before the first Newton step.
template <class T>
void newton_rows(const SparseRows<T>& data, const FixedFactor<T>& fixed, double l2,
                 std::int64_t n_cols, const RowConstraints& constraints,
                 const NewtonSettings& settings, int n_threads, T* x, double* kkt, double* gap);

// One half-step of "mu", with so many relaxed steps before the plain one.
template <class T>
void multiplicative_rows(const SparseRows<T>& data, const FixedFactor<T>& fixed, double l2,
                         std::int64_t n_cols, const RowConstraints& constraints, int relaxed,
                         int n_threads, T* x, double* kkt, double* gap);

// One half-step of "srcd-paper".
template <class T>
void paper_rows(const SparseRows<T>& data, const FixedFactor<T>& fixed, double l2,
                std::int64_t n_cols, const PaperSettings& settings, int n_threads, T* x,
                double* kkt);

// One half-step of "ccd". P (in/out) is the dense product, n_rows x n_cols of the first mode; with
// `by_columns` the rows of `data` are the columns of P.
template <class T>
void dense_rows(const SparseRows<T>& data, std::int64_t n_cols, const T* columns, int rank,
                const double* c, double l2, const DenseSettings& settings, bool by_columns,
                int n_threads, T* x, double* P, double* kkt);

// f and, where wanted, the residual and the gap of every row at x (in), in double.
template <class T>
void evaluate_rows(const SparseRows<T>& data, const FixedFactor<T>& fixed, double l2,
                   std::int64_t n_cols, const RowConstraints& constraints, bool want_residual,
                   int n_threads, const T* x, double* value, double* kkt, double* gap);

// Sums over blocks of this many rows, by row number, are what makes every total independent of
// threads and of how the rows are stored or distributed.
constexpr std::int64_t rows_per_sum = 4096;

// sums[k] (out) = sum_i factor_ik.
template <class T>
void column_sums(const T* factor, std::int64_t n_rows, int rank, int n_threads, double* sums);

// squares[k] (out) = sum_i factor_ik^2, in the same blocks.
template <class T>
void column_squares(const T* factor, std::int64_t n_rows, int rank, int n_threads, double* squares);

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
