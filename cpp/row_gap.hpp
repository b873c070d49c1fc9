// How much lower a row problem could be, in units of the objective. For any theta with
// theta c~_k >= S_k, where c~_k = c_k + l2 x_k, over the components that may move, weak duality
// says (docs/maths/stopping.md, "Certificate")
//
//     f(x) - min f  <=  sum_k c~_k x_k - V + V log theta + B / theta,     V = sum_i v_i,
//
// and B = sum_k x_k S_k over the components that are held. The best theta is max(q, B / V), where
// q = max_k S_k / c~_k.
#pragma once

#include <algorithm>
#include <cmath>

#include "inlined.hpp"
#include "row_job.hpp"

namespace klnmf {

// The bound from its sums: `linear` = sum_k c~_k x_k, `total` = V, `steepest` = q, `held` = B.
KLNMF_INLINE double gap_of_sums(double linear, double total, double steepest, double held = 0) {
    if (!(total > 0))
        return linear; // without nonzeros f is at its least where nothing is in use
    const double theta = max_of(steepest, held / total);
    if (!(theta > 0))
        return Limits<double>::infinity; // nothing covers the nonzeros
    const double gap = linear - total + total * std::log(theta) + held / theta;
    return gap < 0 ? 0.0 : gap; // by rounding; a NaN stays one
}

// The same from the row: x, and S at x, of every component. `held` (may be null) is not 0 for the
// components that keep their x. A component without slope, dead or barred, cannot gain anything.
template <class T, class Sum, class Held>
KLNMF_INLINE double row_gap(const FixedSide<T>& fixed, const T* x, const Sum* S, const Held* held,
                            double total) {
    const double* const c = fixed.c;
    const double l2 = fixed.l2;
    const int rank = fixed.rank;
    double linear = 0, steepest = 0, of_held = 0;
    if (held) {
        for (int k = 0; k < rank; ++k) {
            const double x_k = x[k], slope = c[k] + l2 * x_k, S_k = S[k];
            of_held += held[k] != 0 ? x_k * S_k : 0.0;
            linear += held[k] != 0 ? 0.0 : slope * x_k;
            const double ratio = held[k] == 0 && slope > 0 ? S_k / slope : 0.0;
            steepest = ratio > steepest ? ratio : steepest;
        }
    } else {
#pragma omp simd reduction(+ : linear) reduction(max : steepest)
        for (int k = 0; k < rank; ++k) {
            const double x_k = x[k], slope = c[k] + l2 * x_k, S_k = S[k];
            linear += slope * x_k;
            const double ratio = slope > 0 ? S_k / slope : 0.0;
            steepest = ratio > steepest ? ratio : steepest;
        }
    }
    return gap_of_sums(linear, total, steepest, of_held);
}

} // namespace klnmf
