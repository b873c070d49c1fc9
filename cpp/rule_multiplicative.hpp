// "mu": one multiplicative update of a row, x_k <- x_k S_k / c_k; with an L2 penalty the minimiser
// of the same majoriser, the positive root z of l2 z^2 + c z = x S. Relaxed steps may come first.
#pragma once

#include <cmath>
#include <cstdint>

#include "inlined.hpp"
#include "relaxed_steps.hpp"
#include "row_problem.hpp"

namespace klnmf {

// Largest violation of the optimality conditions at x, from S; dead components are set to 0.
template <class T>
KLNMF_INLINE double settle_dead_and_measure(const Row<T>& row, RowScratch<T>& scratch) {
    using V = typename Lanes<T>::Vector;
    const T inverse_total = static_cast<T>(1 / row.total), l2 = static_cast<T>(row.fixed.l2);
    V worst{};
    for (std::int64_t k = 0; k < row.fixed.stride; k += Lanes<T>::count)
        worst = larger(settle_dead(row, k, inverse_total, l2, scratch).violation, worst);
    return largest_lane(worst);
}

// The residual and the gap are those met before the first step.
template <class T>
KLNMF_OWN RowOutcome multiplicative_row(const Row<T>& row, int relaxed, RowScratch<T>& scratch) {
    RowOutcome outcome{0, 0, 0};
    if (product_and_ratios(row, scratch)) {
        restart_uncovered_row(row, scratch);
        outcome.kkt = outcome.gap = Limits<double>::infinity;
    } else {
        outcome.gap = gap_of_row(row, scratch);
    }
    const double residual = settle_dead_and_measure(row, scratch);
    outcome.kkt = residual > outcome.kkt ? residual : outcome.kkt;
    if (row.fixed.l2 == 0) {
        // What is held has its own part of the row's total, to which relaxed steps are scaled.
        relaxed_rounds(row, row.fixed.held ? 0 : relaxed, scratch);
        plain_step(row, scratch.x, scratch.S, scratch.x);
        return outcome;
    }
    for (int k = 0; k < row.fixed.rank; ++k) {
        if (row.fixed.holds(k))
            continue;
        // In double: c^2 may be beyond a float.
        const double c = row.fixed.c[k];
        const double product = static_cast<double>(scratch.x[k]) * scratch.S[k];
        const double moved =
            product > 0 ? 2 * product / (c + square_root(c * c + 4 * row.fixed.l2 * product)) : 0.0;
        scratch.x[k] = moved > smallest_cover<T>() ? static_cast<T>(moved) : T(0);
    }
    return outcome;
}

} // namespace klnmf
