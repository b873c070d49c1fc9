// Products of rows of A with x, several at a time: what every pass over the nonzeros starts with.
#pragma once

#include <cstdint>
#include <type_traits>

#include "inlined.hpp"
#include "row_job.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

// A vector of a row of A or of x, as it is or in double.
template <class V, class T>
KLNMF_INLINE V load_lanes(const T* from) {
    return __builtin_convertvector(load(from), V);
}

// parts[j] = the products of the row a[j] with x, each lane the sum over every lanes-th component.
// `blocks` is the number of vectors in a row of A, and `x_vectors` holds those of x, where that is
// known when compiling; 0: any number (`stride` entries), read from x.
template <int blocks, class V, class T, int count>
KLNMF_INLINE void partial_products(const T* const (&a)[count], const V* x_vectors, const T* x,
                                   std::int64_t stride, V (&parts)[count]) {
    constexpr int lanes = Lanes<T>::count;
#pragma GCC unroll 8
    for (int j = 0; j < count; ++j)
        parts[j] = V{};
    if constexpr (blocks > 0) {
#pragma GCC unroll 8
        for (int b = 0; b < blocks; ++b)
#pragma GCC unroll 8
            for (int j = 0; j < count; ++j)
                parts[j] += load_lanes<V>(a[j] + b * lanes) * x_vectors[b];
    } else {
        for (std::int64_t k = 0; k < stride; k += lanes) {
            const V part_of_x = load_lanes<V>(x + k);
#pragma GCC unroll 8
            for (int j = 0; j < count; ++j)
                parts[j] += load_lanes<V>(a[j] + k) * part_of_x;
        }
    }
}

// Fetches the rows of A at `count` columns, which will be needed soon; of a tensor, those of all
// factors.
template <int count, bool products = false, class T>
KLNMF_INLINE void fetch_rows(const FixedSide<T>& fixed, const std::int32_t* columns,
                             std::int64_t stride) {
    for (int q = 0; q < (products ? fixed.n_others : 1); ++q, columns += fixed.index_stride)
        for (std::int64_t k = 0; k < stride; k += 64 / static_cast<int>(sizeof(T)))
#pragma GCC unroll 8
            for (int j = 0; j < count; ++j)
                __builtin_prefetch(fixed.A + columns[j] * stride + k);
}

// A copy where products of rows are stored on the way: no store can change what only this function
// sees, so that it stays in registers. Else a reference.
template <bool products, class C>
using LocalIf = std::conditional_t<products, C, C&>;

// product (out) = that of the rows of A that a nonzero of a tensor has; the first of its columns is
// at `index`. `stride` is that of A, known when compiling where it pays.
template <class T>
KLNMF_INLINE void multiply_rows(const FixedSide<T>& fixed, const std::int32_t* index,
                                std::int64_t stride, T* product) {
    constexpr int lanes = Lanes<T>::count;
    const T* first = fixed.A + index[0] * stride;
    for (int q = 1; q < fixed.n_others; ++q) {
        const T* const next = fixed.A + index[q * fixed.index_stride] * stride;
#pragma GCC unroll 8
        for (std::int64_t k = 0; k < stride; k += lanes)
            store(product + k, load(first + k) * load(next + k));
        first = product;
    }
}

// The rows of A of `count` nonzeros of a tensor, a[j], made at `made`, and their partial_products
// with x. Beyond the last of `remaining` nonzeros that is repeated.
template <int blocks, class V, class T, int count>
KLNMF_INLINE void products_with_x(const FixedSide<T>& fixed, const std::int32_t* index,
                                  std::int64_t remaining, const V* x_vectors, const T* x, T* made,
                                  const T* (&a)[count], V (&parts)[count]) {
    constexpr int lanes = Lanes<T>::count;
    const std::int64_t stride = blocks > 0 ? blocks * lanes : fixed.stride;
#pragma GCC unroll 8
    for (int j = 0; j < count; ++j)
        a[j] = made + j * stride;
    if (blocks == 0 || fixed.n_others > 2 || remaining < count) {
        for (int j = 0; j < count; ++j)
            multiply_rows(fixed, index + (j < remaining ? j : remaining - 1), stride,
                          made + j * stride);
        return partial_products<blocks>(a, x_vectors, x, stride, parts);
    }
    // Three modes: nothing waits for what was stored.
#pragma GCC unroll 8
    for (int j = 0; j < count; ++j) {
        const T* const first = fixed.A + index[j] * stride;
        const T* const second = fixed.A + index[fixed.index_stride + j] * stride;
        parts[j] = V{};
#pragma GCC unroll 8
        for (int b = 0; b < blocks; ++b) {
            const V entries = load(first + b * lanes) * load(second + b * lanes);
            store(made + j * stride + b * lanes, entries);
            parts[j] += entries * x_vectors[b];
        }
    }
}

} // namespace klnmf
