// How far a step of Newton's method goes, for a row alone and for rows side by side.
#pragma once

#include <algorithm>
#include <type_traits>

#include "inlined.hpp"

namespace klnmf {

// Looks for how far to go along a way that leads too far, as a share of it: to where the slope of f
// is about 0, from below. The slope rises from slope_low < 0 at `low` to slope_high at `high`. V is
// a number T, or a vector of one for each row of a batch; Mask says yes or no of each.
template <class T, class V, class Mask>
struct WaySearch {
    static constexpr int tries = 4;
    V slope_low, slope_high;
    V low = V{}, high = V{} + T(1);

    // From the slopes at both ends of the way; the second counts where the end is `covered`.
    KLNMF_INLINE WaySearch(V at_start, V at_end, Mask covered) : slope_low(at_start) {
        slope_high = (covered & (at_end < far_slope())) ? at_end : far_slope();
    }

    // A slope that is not known, or so steep that it says little about where the others are 0.
    KLNMF_INLINE V far_slope() const { return slope_low * T(-8); }

    // Where to look next: at the straight line's zero, but well inside.
    KLNMF_INLINE V next() const {
        const V t = low + (high - low) * (slope_low / (slope_low - slope_high));
        const V margin = (high - low) * T(0.1);
        if constexpr (std::is_same_v<T, V>)
            return min_of(max_of(t, low + margin), high - margin);
        else
            return t > low + margin ? (t < high - margin ? t : high - margin) : low + margin;
    }

    // What was found at t; the slope counts where t is `covered`.
    KLNMF_INLINE void narrow(V t, V slope, Mask covered) {
        const Mask before_zero = covered & (slope <= 0);
        slope_high = before_zero ? slope_high : (covered ? slope : far_slope());
        high = before_zero ? high : t;
        slope_low = before_zero ? slope : slope_low;
        low = before_zero ? t : low;
    }

    KLNMF_INLINE V share() const { return low > 0 ? low : high * T(0.5); }
};

} // namespace klnmf
