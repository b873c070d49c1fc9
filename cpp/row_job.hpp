// What a half-step works on: views of the data and of the factors. They own nothing: Python owns
// every array.
#pragma once

#include <cstdint>

#include "inlined.hpp"

namespace klnmf {

// One mode of the data in CSR form: row i holds values[indptr[i] .. indptr[i+1]) at the columns in
// `indices`; the nonzeros of a tensor have several, see FixedSide. W's rows see X, H's rows see the
// transpose of X; no kernel knows which one it was given. T is the type of the factors. Factors in
// float may go with data in double: `wide` then stands in for `values`, and its numbers are rounded
// as they are read.
template <class T>
struct SparseRows {
    std::int64_t n_rows;
    const std::int64_t* indptr;
    const std::int32_t* indices;
    const T* values;
    const double* wide = nullptr;

    // Known when compiling where T is double, so that nothing is compiled twice.
    KLNMF_INLINE bool is_wide() const { return sizeof(T) < sizeof(double) && wide; }

    KLNMF_INLINE std::int64_t begin(std::int64_t row) const { return indptr[row]; }
    KLNMF_INLINE std::int64_t length(std::int64_t row) const {
        return indptr[row + 1] - indptr[row];
    }

    // Nonzeros from the row's first on, those of the rows after it included.
    KLNMF_INLINE std::int64_t available(std::int64_t row) const {
        return indptr[n_rows] - indptr[row];
    }

    KLNMF_INLINE std::int64_t nnz() const { return indptr[n_rows] - indptr[0]; }
};

// What a row problem sees of everything that a half-step keeps fixed: A (n_rows x rank, its rows
// `stride` apart, one for each column of the data), the slope of the linear term, c_k = sum_i A_ik
// + l1, in double whatever the type of A, and the L2 penalty.
//
// Of a tensor with d modes, A holds the d - 1 other factors, one below the other. Nonzero i has the
// rows indices[q * index_stride + i] of it, q < n_others = d - 1, and what is called its row of A
// is their elementwise product. These products are made while A is read, a few at a time.
template <class T>
struct FixedSide {
    const T* A;
    std::int64_t n_rows;
    int rank;
    std::int64_t stride;
    const double* c;
    double l2;
    const T* slope = nullptr;         // c in T, and 1 / c (0 where c is), both padded with 0 to the
    const T* inverse_slope = nullptr; // stride: set by PaddedJob, for the rules that step in T

    // 1 for a component that x keeps as it is, else 0, padded likewise; null if there is none. Its
    // slope in T is 0, as if it were dead, its c is not.
    const T* held = nullptr;

    bool fetch_ahead = false; // whether A is larger than a core's own cache

    int n_others = 1;
    std::int64_t index_stride = 0;

    KLNMF_INLINE bool has_products() const { return n_others > 1; }

    KLNMF_INLINE bool holds(std::int64_t k) const { return held && held[k] > 0; }

    KLNMF_INLINE const T* row(std::int64_t i) const { return A + i * stride; }
};

// What a row problem may have of its own: cells of X that nobody has seen, entries that must be 0,
// a penalty in units of its own; and the components that a half-step does not move. Any of the
// pointers may be null: there is nothing of the kind then.
struct RowConstraints {
    // Row i misses the columns missing[missing_starts[i] .. missing_starts[i+1]), in rising order.
    // Of a tensor, cell p has the columns missing[q * missing_stride + p], q < n_sizes, and rises
    // by its first column, then by the next one; sizes[q] of the rows of A belong to factor q.
    const std::int64_t* missing_starts = nullptr;
    const std::int64_t* missing = nullptr;
    std::int64_t missing_stride = 0;
    const std::int64_t* sizes = nullptr;
    int n_sizes = 1;
    // The components barred[barred_starts[i] .. barred_starts[i+1]) of row i are 0, and stay so.
    const std::int64_t* barred_starts = nullptr;
    const std::int32_t* barred = nullptr;
    // By row two numbers: what l1 and l2 are multiplied by in it, because its x is not in the units
    // that the penalties are about. Without it, c includes l1 already.
    const double* penalty_shares = nullptr;
    double l1 = 0;
    const std::uint8_t* frozen = nullptr; // by component: whether x keeps it as it is, in all rows

    KLNMF_INLINE std::int64_t n_missing(std::int64_t row) const {
        return missing_starts ? missing_starts[row + 1] - missing_starts[row] : 0;
    }

    KLNMF_INLINE std::int64_t n_barred(std::int64_t row) const {
        return barred_starts ? barred_starts[row + 1] - barred_starts[row] : 0;
    }

    KLNMF_INLINE bool has_own(std::int64_t row) const {
        return penalty_shares || n_missing(row) > 0 || n_barred(row) > 0;
    }

    // Whether the rules for many rows side by side, which know nothing of all this, may have it.
    KLNMF_INLINE bool is_plain(std::int64_t row) const { return !frozen && !has_own(row); }
};

struct RowOutcome {
    double value; // f at the row's new x, where the rule computes it and was asked to; of a tensor
                  // it is computed by row_evaluation.hpp, with products in double: gathered ones
                  // are rounded, and the values of two modes would differ
    double kkt;   // the largest violation met
    double gap;   // how much lower f could be, at most, where the rule started
};

// The row problems of one half-step: all that a kernel reads besides its settings, and where its
// results go.
template <class T>
struct RowJob {
    SparseRows<T> data;
    FixedSide<T> fixed;
    RowConstraints constraints;
    int n_threads;
    T* x;          // in/out, n_rows x rank: a row for each row of the data
    double* value; // out, by row, see RowOutcome; `value` and `gap` are null where the rule does
    double* kkt;   // not give them
    double* gap;
    std::int64_t longest_row = 0; // nonzeros of a row that the scratch has to hold: see PaddedJob

    KLNMF_INLINE T* x_row(std::int64_t i) const { return x + i * fixed.rank; }

    KLNMF_INLINE void report(std::int64_t i, const RowOutcome& outcome) const {
        if (value)
            value[i] = outcome.value;
        kkt[i] = outcome.kkt;
        if (gap)
            gap[i] = outcome.gap;
    }
};

} // namespace klnmf
