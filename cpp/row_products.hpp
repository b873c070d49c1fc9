// Products of rows of A with x, several at a time: what every pass over the nonzeros starts with.
#pragma once

#include <cstdint>

#include "parallel.hpp"
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

// Fetches the rows of A at `count` columns, which will be needed soon.
template <int count, class T>
KLNMF_INLINE void fetch_rows(const FixedSide<T>& fixed, const std::int32_t* columns,
                             std::int64_t stride) {
    for (std::int64_t k = 0; k < stride; k += 64 / static_cast<int>(sizeof(T)))
#pragma GCC unroll 8
        for (int j = 0; j < count; ++j)
            __builtin_prefetch(fixed.A + columns[j] * stride + k);
}

} // namespace klnmf
