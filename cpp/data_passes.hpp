// Passes over X before the first iteration: what its checks, its sums and its transpose need. Sums
// are over blocks of fixed sizes, in order, so that the number of threads changes no bit.
#pragma once

#include <cstdint>
#include <span>

namespace klnmf {

// What the checks ask about all values. Where not all are finite, the rest says nothing.
struct ValueFacts {
    double smallest, largest, total;
    bool finite;
};

template <class T>
ValueFacts value_facts(const T* values, std::int64_t size, int n_threads);

// Whether float holds all values exactly.
bool are_floats(const double* values, std::int64_t size, int n_threads);

// Whether the column numbers of every row rise: sorted, and none of them twice.
template <class Index>
bool columns_rise(const Index* indptr, std::int64_t n_rows, const Index* indices, int n_threads);

// Sum of every row, in double.
template <class T>
void row_sums(const std::int64_t* indptr, std::int64_t n_rows, const T* values, int n_threads,
              double* sums);

// sum_i v_i log v_i - v_i; values are not negative, and 0 log 0 = 0.
template <class T>
double divergence_constant(const T* values, std::int64_t size, int n_threads);

// The rows of the transpose, each in the order of the rows of X. `indptr_out` has n_cols + 1
// entries.
template <class T>
void transpose_rows(const std::int64_t* indptr, std::int64_t n_rows, const std::int32_t* indices,
                    const T* values, std::int64_t n_cols, int n_threads, std::int64_t* indptr_out,
                    std::int32_t* indices_out, T* values_out);

// The entries of a tensor in the order of their coordinates in one mode, which has this size; those
// with the same keep theirs. `coords` is mode x entry; row q of coords_out is row modes[q] of it,
// plus offsets[q]. Entries at j are from indptr_out[j] on.
template <class T>
void sort_by_mode(const std::int32_t* coords, const T* values, std::int64_t nnz, std::int64_t mode,
                  std::int64_t size, std::span<const std::int32_t> modes,
                  const std::int32_t* offsets, int n_threads, std::int64_t* indptr_out,
                  std::int32_t* coords_out, T* values_out);

} // namespace klnmf
