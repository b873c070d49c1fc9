// "mu": one multiplicative update of a row, x_k <- x_k S_k / c_k; with an L2 penalty the minimiser
// of the same majoriser, the positive root z of l2 z^2 + c z = x S.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "row_problem.hpp"

namespace klnmf {

template <class T, class I>
KLNMF_INLINE RowOutcome multiplicative_row(const Row<T, I>& row, RowScratch<T>& scratch) {
    RowOutcome outcome{0, 0};
    if (product_and_ratios(row, scratch)) {
        restart_uncovered_row(row, scratch);
        outcome.kkt = std::numeric_limits<double>::infinity();
    }
    const T* c = row.fixed.slope;
    const T* inverse_c = row.fixed.inverse_slope;
    const T inverse_total = static_cast<T>(1 / row.total), l2 = static_cast<T>(row.l2);
    T worst = 0;
#pragma omp simd reduction(max : worst)
    for (int k = 0; k < row.fixed.rank; ++k) {
        const T x = c[k] > 0 ? scratch.x[k] : T(0), S = scratch.S[k];
        const T residual =
            entry_residual(x * c[k] * inverse_total, (c[k] + l2 * x - S) * inverse_c[k]);
        worst = residual > worst ? residual : worst;
        T moved = x * S;
        if (l2 > 0)
            moved = moved > 0 ? 2 * moved / (c[k] + std::sqrt(c[k] * c[k] + 4 * l2 * moved)) : T(0);
        else
            moved *= inverse_c[k];
        // Below this an entry is a denormal in waiting; the nonzeros it helps to cover have others.
        scratch.x[k] = moved > smallest_cover<T>() ? moved : T(0);
    }
    outcome.kkt = worst > outcome.kkt ? static_cast<double>(worst) : outcome.kkt;
    return outcome;
}

} // namespace klnmf
