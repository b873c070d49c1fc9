// The two second-order steps for one coordinate that never overshoot the minimiser of f along it.
// With the other coordinates fixed, S(x) = sum_i v_i a_i / y_i(x), h(x) = sum_i v_i a_i^2 /
// y_i(x)^2 and f'(x) = c + l2 x - S(x) is increasing and concave: a Newton step on f' from the
// right always overshoots. Newton on a concave function that has the same root does not:
#pragma once

#include <cmath>

#include "inlined.hpp"

namespace klnmf {

// The left formula's point is positive exactly where this is:  c x + (S - c) S / h.
template <class T>
KLNMF_INLINE T left_numerator(T x, T S, T h, T c) {
    return c * x + (S - c) * (S / h);
}

// From the left (f' < 0): Newton on 1/S, which is concave. With l2 = 0, x - (g/h)(S/c); otherwise
// the positive root z of (c + l2 z)(z + S/h - x) = S^2/h.
template <class T>
KLNMF_INLINE T step_from_left(T x, T S, T h, T c, T l2) {
    const T numerator = left_numerator(x, S, h, c);
    if (l2 == 0)
        return numerator / c;
    const T b = c + l2 * (S / h - x); // S >= x h, so b >= c > 0
    return 2 * numerator / (b + square_root(b * b + 4 * l2 * numerator));
}

// From the right (f' > 0): Newton on x S(x), which is concave. With l2 = 0, x^2 h / (g + x h);
// otherwise the positive root z of l2 z^2 + B z = x^2 h with B = c - S + x h.
template <class T>
KLNMF_INLINE T step_from_right(T x, T S, T h, T c, T l2) {
    const T xh = x * h; // first: x * x could underflow
    const T B = c - S + xh;
    if (l2 == 0)
        return x * (xh / B);
    const T root = square_root(B * B + 4 * l2 * x * xh);
    return B >= 0 ? x * (2 * xh / (B + root)) : (root - B) / (2 * l2);
}

} // namespace klnmf
