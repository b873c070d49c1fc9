// Columns of A under the nonzeros of a row, gathered one after the other into the scratch.
#pragma once

#include <cstdint>

#include "inlined.hpp"
#include "row_problem.hpp"
#include "row_scratch.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

// Of a tensor, the rows of A under a vector of nonzeros from the i-th on, one after the other.
template <class T>
KLNMF_INLINE const T* products_at(const Row<T>& row, std::int64_t i, RowScratch<T>& scratch) {
    const std::int64_t stride = row.fixed.stride;
    if (row.kept_products)
        return row.kept_products + i * stride;
    for (std::int64_t l = 0; l < Lanes<T>::count && i + l < row.length; ++l)
        multiply_rows(row.fixed, row.indices + i + l, stride, scratch.products + l * stride);
    return scratch.products;
}

// Copies the columns of A that belong to `components` to scratch.columns, one after the other.
template <bool products, class T>
KLNMF_INLINE void gather_columns_in(const Row<T>& row, const std::int32_t* components, int count,
                                    RowScratch<T>& scratch) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    const std::int64_t stride = row.padded_length;
    std::int64_t i = 0;
    const T* made = nullptr;
    const auto row_at = [&](std::int64_t l) KLNMF_INLINE_LAMBDA {
        return products ? made + l * row.fixed.stride : row.fixed_row(i + l);
    };
    for (; i + lanes <= row.length; i += lanes) {
        if (!products || !row.kept_products)
            fetch_ahead<products>(row, i, row.fixed.stride);
        if constexpr (products)
            made = products_at(row, i, scratch);
        const T* a[lanes];
#pragma GCC unroll 8
        for (int l = 0; l < lanes; ++l)
            a[l] = row_at(l);
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
    if constexpr (products)
        made = products_at(row, i, scratch);
    for (int j = 0; j < count; ++j)
        for (std::int64_t q = i; q < stride; ++q)
            scratch.columns[j * stride + q] = q < row.length ? row_at(q - i)[components[j]] : T(0);
}

// Copies all columns, in the order of the components, by squares transposed in registers.
template <bool products, class T>
KLNMF_INLINE void gather_all_columns_in(const Row<T>& row, RowScratch<T>& scratch) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    const std::int64_t stride = row.padded_length;
    for (std::int64_t i = 0; i < stride; i += lanes) {
        if (!products || !row.kept_products)
            fetch_ahead<products>(row, i, row.fixed.stride);
        const T* made = nullptr;
        if constexpr (products)
            made = products_at(row, i, scratch);
        const auto row_at = [&](std::int64_t j) KLNMF_INLINE_LAMBDA {
            return products ? made + j * row.fixed.stride : row.fixed_row(i + j);
        };
        for (std::int64_t k = 0; k < row.fixed.stride; k += lanes) {
            V square[lanes];
            for (int j = 0; j < lanes; ++j)
                square[j] = i + j < row.length ? load(row_at(j) + k) : V{};
            transpose(square);
            for (int j = 0; j < lanes; ++j)
                store(scratch.columns + (k + j) * stride + i, square[j]);
        }
    }
}

// Either of them: all columns where there are no `components`.
template <bool products, class T>
KLNMF_INLINE void gather_in(const Row<T>& row, const std::int32_t* components, int count,
                            RowScratch<T>& scratch) {
    if (components)
        gather_columns_in<products>(row, components, count, scratch);
    else
        gather_all_columns_in<products>(row, scratch);
}

// A tensor has a function of its own, as in row_problem.hpp.
template <class T>
KLNMF_OWN void gather_products(const Row<T>& row, const std::int32_t* components, int count,
                               RowScratch<T>& scratch) {
    gather_in<true>(row, components, count, scratch);
}

template <class T>
KLNMF_INLINE void gather_columns(const Row<T>& row, const std::int32_t* components, int count,
                                 RowScratch<T>& scratch) {
    return row.fixed.has_products() ? gather_products(row, components, count, scratch)
                                    : gather_in<false>(row, components, count, scratch);
}

// Gathers the columns of the active components, all columns where that is quicker.
template <class T>
KLNMF_INLINE void gather_active(const Row<T>& row, int n_active, RowScratch<T>& scratch) {
    const bool all = 3 * n_active > 2 * row.fixed.rank &&
                     row.fixed.stride <= scratch.columns_at_once(row.length);
    for (int j = 0; j < n_active; ++j)
        scratch.slots[j] = all ? scratch.active[j] : j;
    gather_columns(row, all ? nullptr : scratch.active, n_active, scratch);
}

} // namespace klnmf
