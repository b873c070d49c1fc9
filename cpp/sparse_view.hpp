// Read-only views of the data and of the fixed factor. They own nothing: Python owns every array.
#pragma once

#include <cstdint>

namespace klnmf {

// Largest of ends[i + 1] - ends[i] for i in [0, size), at least 0.
std::int64_t longest_difference(const std::int64_t* ends, std::int64_t size);

// One mode of the data in CSR form: row i holds values[indptr[i] .. indptr[i+1]) at the columns in
// `indices`. W's rows see X, H's rows see the transpose of X; no kernel knows which one it was
// given. T is the type of the factors. Factors in float may go with data in double: `wide` then
// stands in for `values`, and its numbers are rounded as they are read.
template <class T>
struct SparseRows {
    std::int64_t n_rows;
    const std::int64_t* indptr;
    const std::int32_t* indices;
    const T* values;
    const double* wide = nullptr;

    // Known when compiling where T is double, so that nothing is compiled twice.
    bool is_wide() const { return sizeof(T) < sizeof(double) && wide; }

    std::int64_t begin(std::int64_t row) const { return indptr[row]; }
    std::int64_t length(std::int64_t row) const { return indptr[row + 1] - indptr[row]; }

    std::int64_t nnz() const { return indptr[n_rows] - indptr[0]; }

    std::int64_t longest_row() const { return longest_difference(indptr, n_rows); }
};

// The factor that a half-step keeps fixed: A (n_cols x rank, its rows `stride` apart) and the slope
// of the row problem's linear term, c_k = sum_i A_ik + l1, in double whatever the type of A.
template <class T>
struct FixedFactor {
    const T* A;
    int rank;
    const double* c;
    std::int64_t stride;
    const T* slope = nullptr;         // c in T, and 1 / c (0 where c is), both padded with 0 to the
    const T* inverse_slope = nullptr; // stride: set by PaddedFactor, for the rules that step in T

    // 1 for a component that x keeps as it is, else 0, padded likewise; null if there is none. Its
    // slope in T is 0, as if it were dead, its c is not.
    const T* held = nullptr;

    bool fetch_ahead = false; // whether A is larger than a core's own cache

    bool holds(std::int64_t k) const { return held && held[k] > 0; }

    const T* row(std::int64_t i) const { return A + i * stride; }
};

} // namespace klnmf
