// Columns of A under the nonzeros of a row, gathered one after the other into the scratch.
#pragma once

#include <cstdint>

#include "parallel.hpp"
#include "row_problem.hpp"
#include "row_scratch.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

// Copies the columns of A that belong to `components` to scratch.columns, one after the other.
template <class T>
KLNMF_INLINE void gather_columns(const Row<T>& row, const std::int32_t* components, int count,
                                 RowScratch<T>& scratch) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    const std::int64_t stride = row.padded_length;
    std::int64_t i = 0;
    for (; i + lanes <= row.length; i += lanes) {
        fetch_ahead(row, i, row.fixed.stride);
        const T* a[lanes];
#pragma GCC unroll 8
        for (int l = 0; l < lanes; ++l)
            a[l] = row.fixed_row(i + l);
        T* column = scratch.columns + i;
        for (int j = 0; j < count; ++j) {
            const std::int64_t k = components[j];
            V gathered{};
#pragma GCC unroll 8
            for (int l = 0; l < lanes; ++l)
                gathered[l] = a[l][k];
            store(column, gathered);
            column += stride;
        }
    }
    for (int j = 0; j < count; ++j)
        for (std::int64_t q = i; q < stride; ++q)
            scratch.columns[j * stride + q] =
                q < row.length ? row.fixed_row(q)[components[j]] : T(0);
}

// Copies all columns, in the order of the components, by squares transposed in registers.
template <class T>
KLNMF_INLINE void gather_all_columns(const Row<T>& row, RowScratch<T>& scratch) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    const std::int64_t stride = row.padded_length;
    for (std::int64_t i = 0; i < stride; i += lanes) {
        fetch_ahead(row, i, row.fixed.stride);
        for (std::int64_t k = 0; k < row.fixed.stride; k += lanes) {
            V square[lanes];
            for (int j = 0; j < lanes; ++j)
                square[j] = i + j < row.length ? load(row.fixed_row(i + j) + k) : V{};
            transpose(square);
            for (int j = 0; j < lanes; ++j)
                store(scratch.columns + (k + j) * stride + i, square[j]);
        }
    }
}

// Gathers the columns of the active components, all columns where that is quicker.
template <class T>
KLNMF_INLINE void gather_active(const Row<T>& row, int n_active, RowScratch<T>& scratch) {
    const bool all = 3 * n_active > 2 * row.fixed.rank &&
                     row.fixed.stride <= scratch.columns_at_once(row.length);
    for (int j = 0; j < n_active; ++j)
        scratch.slots[j] = all ? scratch.active[j] : j;
    if (all)
        gather_all_columns(row, scratch);
    else
        gather_columns(row, scratch.active, n_active, scratch);
}

} // namespace klnmf
