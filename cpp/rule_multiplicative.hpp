// "mu": one multiplicative update of a row, x_k <- x_k S_k / c_k; with an L2 penalty the minimiser
// of the same majoriser, the positive root z of l2 z^2 + c z = x S. Relaxed steps may come first.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "relaxed_steps.hpp"
#include "row_problem.hpp"

namespace klnmf {

// The largest violation of the optimality conditions at x, to which S belongs.
template <class T, class I>
KLNMF_INLINE T row_residual(const Row<T, I>& row, const RowScratch<T>& scratch) {
    const T* c = row.fixed.slope;
    const T inverse_total = static_cast<T>(1 / row.total), l2 = static_cast<T>(row.l2);
    T worst = 0;
#pragma omp simd reduction(max : worst)
    for (int k = 0; k < row.fixed.rank; ++k) {
        const T x = scratch.x[k];
        const T residual = entry_residual(x * c[k] * inverse_total, (c[k] + l2 * x - scratch.S[k]) *
                                                                        row.fixed.inverse_slope[k]);
        worst = residual > worst ? residual : worst;
    }
    return worst;
}

// The residual is the one met before the first step.
template <class T, class I>
KLNMF_INLINE RowOutcome multiplicative_row(const Row<T, I>& row, int relaxed,
                                           RowScratch<T>& scratch) {
    RowOutcome outcome{0, 0};
    // A dead component (c = 0, nothing in A) is set to 0.
    for (int k = 0; k < row.fixed.rank; ++k)
        scratch.x[k] = row.fixed.slope[k] > 0 ? scratch.x[k] : T(0);
    if (product_and_ratios(row, scratch)) {
        restart_uncovered_row(row, scratch);
        outcome.kkt = std::numeric_limits<double>::infinity();
    }
    const double residual = row_residual(row, scratch);
    outcome.kkt = residual > outcome.kkt ? residual : outcome.kkt;
    if (row.l2 == 0) {
        relaxed_rounds(row, relaxed, scratch);
        plain_step(row, scratch.x, scratch.S, scratch.x);
        return outcome;
    }
    for (int k = 0; k < row.fixed.rank; ++k) {
        // In double: c^2 may be beyond a float.
        const double c = row.fixed.c[k];
        const double product = static_cast<double>(scratch.x[k]) * scratch.S[k];
        const double moved =
            product > 0 ? 2 * product / (c + std::sqrt(c * c + 4 * row.l2 * product)) : 0.0;
        scratch.x[k] = moved > smallest_cover<T>() ? static_cast<T>(moved) : T(0);
    }
    return outcome;
}

} // namespace klnmf
