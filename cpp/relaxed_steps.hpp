// Over-relaxed multiplicative steps: x_k <- x_k (S_k / c_k)^2 instead of x_k S_k / c_k, scaled so
// that c.x is the row's total, as it is at every optimum without an L2 penalty. Far from the
// optimum one such step does what two plain ones do, but it is not certain to descend; each is
// therefore tested and, where it fails, replaced by the plain one.
#pragma once

#include <cstdint>
#include <limits>

#include "row_problem.hpp"

namespace klnmf {

// x = x_before S_before / c: the plain multiplicative step, which never raises f (without L2).
template <class T, class I>
KLNMF_INLINE void plain_step(const Row<T, I>& row, const T* x_before, const T* S_before, T* x) {
    for (int k = 0; k < row.fixed.rank; ++k) {
        const T moved = x_before[k] * S_before[k] * row.fixed.inverse_slope[k];
        // Below this an entry is a denormal in waiting.
        x[k] = moved > smallest_cover<T>() ? moved : T(0);
    }
}

template <class T, class I>
KLNMF_INLINE void relaxed_step(const Row<T, I>& row, RowScratch<T>& scratch) {
    T mass = 0;
    for (int k = 0; k < row.fixed.rank; ++k) {
        const T ratio = scratch.S_before[k] * row.fixed.inverse_slope[k];
        const T moved = scratch.x_before[k] * ratio * ratio;
        scratch.x[k] = moved > smallest_cover<T>() ? moved : T(0);
        mass += scratch.x[k] * row.fixed.slope[k];
    }
    const T scale = static_cast<T>(row.total) / mass;
    for (int k = 0; k < row.fixed.rank; ++k)
        scratch.x[k] *= scale;
}

// Whether f at the new x is no higher than before. f is convex, so that it is enough that its slope
// at the new point, along the way there, is not positive:
//     grad f(x) . (x - x_before) = c.(x - x_before) - sum_i v_i (y_i - y_before_i) / y_i <= 0,
// by more than the rounding of y could hide.
template <class T, class I>
KLNMF_INLINE bool has_descended(const Row<T, I>& row, const RowScratch<T>& scratch) {
    double slope = 0, gain = 0;
    for (int k = 0; k < row.fixed.rank; ++k)
        slope += row.fixed.c[k] *
                 (static_cast<double>(scratch.x[k]) - static_cast<double>(scratch.x_before[k]));
#pragma omp simd reduction(+ : gain)
    for (std::int64_t i = 0; i < row.padded_length; ++i)
        gain +=
            static_cast<double>(scratch.v[i] * (scratch.y[i] - scratch.y_before[i]) / scratch.y[i]);
    return slope + 8 * std::numeric_limits<T>::epsilon() * row.total <= gain;
}

// Relaxed steps; on entry and on return y and S belong to x.
template <class T, class I>
KLNMF_INLINE void relaxed_rounds(const Row<T, I>& row, int rounds, RowScratch<T>& scratch) {
    for (int round = 0; round < rounds; ++round) {
        for (std::int64_t i = 0; i < row.padded_length; ++i)
            scratch.y_before[i] = scratch.y[i];
        for (int k = 0; k < row.fixed.rank; ++k) {
            scratch.x_before[k] = scratch.x[k];
            scratch.S_before[k] = scratch.S[k];
        }
        relaxed_step(row, scratch);
        if (product_and_ratios(row, scratch) || !has_descended(row, scratch)) {
            plain_step(row, scratch.x_before, scratch.S_before, scratch.x);
            product_and_ratios(row, scratch);
        }
    }
}

} // namespace klnmf
