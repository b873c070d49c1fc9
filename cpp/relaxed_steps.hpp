// Over-relaxed multiplicative steps: x_k <- x_k (S_k / c_k)^3 instead of x_k S_k / c_k, scaled so
// that c.x is the row's total, as it is at every optimum without an L2 penalty. Far from the
// optimum one such step does what three plain ones do, but it is not certain to descend; each is
// therefore tested and, where it fails, replaced by the plain one.
#pragma once

#include <cstdint>

#include "inlined.hpp"
#include "row_problem.hpp"

namespace klnmf {

// x, S and the slopes are padded with 0 to the stride of A: loops go over whole vectors.

// x = x_before S_before / c: the plain multiplicative step, which never raises f (without L2). What
// is held stays.
template <class T>
KLNMF_INLINE void plain_step(const Row<T>& row, const T* x_before, const T* S_before, T* x) {
    using V = typename Lanes<T>::Vector;
    for (std::int64_t k = 0; k < row.fixed.stride; k += Lanes<T>::count) {
        const V moved = load(x_before + k) * load(S_before + k) * load(row.fixed.inverse_slope + k);
        const V kept = row.fixed.held ? load(row.fixed.held + k) : V{};
        // Below this an entry is a denormal in waiting.
        store(x + k, kept > 0 ? load(x_before + k) : (moved > smallest_cover<T>() ? moved : V{}));
    }
}

template <class T>
KLNMF_INLINE void relaxed_step(const Row<T>& row, RowScratch<T>& scratch) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    V masses{};
    for (std::int64_t k = 0; k < row.fixed.stride; k += lanes) {
        const V ratio = load(scratch.S_before + k) * load(row.fixed.inverse_slope + k);
        const V moved = load(scratch.x_before + k) * ratio * ratio * ratio;
        const V x = moved > smallest_cover<T>() ? moved : V{};
        store(scratch.x + k, x);
        masses += x * load(row.fixed.slope + k);
    }
    const T scale = static_cast<T>(row.total) / sum_both(masses, masses).first;
    for (std::int64_t k = 0; k < row.fixed.stride; k += lanes)
        store(scratch.x + k, load(scratch.x + k) * scale);
}

// Whether f at the new x is no higher than before. f is convex, so that it is enough that its slope
// at the new point, along the way there, is not positive:
//     grad f(x) . (x - x_before) = c.(x - x_before) - sum_i v_i (y_i - y_before_i) / y_i <= 0,
// by more than the rounding of y could hide.
template <class T>
KLNMF_INLINE bool has_descended(const Row<T>& row, const RowScratch<T>& scratch) {
    using V = typename Lanes<T>::Vector;
    using Wide = typename Lanes<T>::Wide;
    constexpr int lanes = Lanes<T>::count;
    Wide slopes{}, gains{};
    for (std::int64_t k = 0; k < row.fixed.stride; k += lanes)
        slopes += __builtin_convertvector(load(row.fixed.slope + k), Wide) *
                  (__builtin_convertvector(load(scratch.x + k), Wide) -
                   __builtin_convertvector(load(scratch.x_before + k), Wide));
    for (std::int64_t i = 0; i < row.padded_length; i += lanes) {
        const V y = load(scratch.y + i);
        const V gain = load(scratch.v + i) * (y - load(scratch.y_before + i)) / y;
        gains += __builtin_convertvector(gain, Wide);
    }
    return 8 * Limits<T>::epsilon * row.total <= sum_lanes(gains - slopes);
}

// Relaxed steps; on entry and on return y and S belong to x.
template <class T>
KLNMF_INLINE void relaxed_rounds(const Row<T>& row, int rounds, RowScratch<T>& scratch) {
    for (int round = 0; round < rounds; ++round) {
        constexpr int lanes = Lanes<T>::count;
        for (std::int64_t i = 0; i < row.padded_length; i += lanes)
            store(scratch.y_before + i, load(scratch.y + i));
        for (std::int64_t k = 0; k < row.fixed.stride; k += lanes) {
            store(scratch.x_before + k, load(scratch.x + k));
            store(scratch.S_before + k, load(scratch.S + k));
        }
        relaxed_step(row, scratch);
        if (product_and_ratios(row, scratch) || !has_descended(row, scratch)) {
            plain_step(row, scratch.x_before, scratch.S_before, scratch.x);
            product_and_ratios(row, scratch);
        }
    }
}

} // namespace klnmf
