// What a row problem may have of its own: cells of X that nobody has seen, entries that must be 0,
// a penalty in units of its own; and the components that a half-step does not move.
#pragma once

#include <cstdint>

#include "parallel.hpp"
#include "row_scratch.hpp"
#include "sparse_view.hpp"

namespace klnmf {

// Any of the pointers may be null: there is nothing of the kind then.
struct RowConstraints {
    // Row i misses the columns missing[missing_starts[i] .. missing_starts[i+1]), in rising order.
    const std::int64_t* missing_starts = nullptr;
    const std::int64_t* missing = nullptr;
    // The components barred[barred_starts[i] .. barred_starts[i+1]) of row i are 0, and stay so.
    const std::int64_t* barred_starts = nullptr;
    const std::int32_t* barred = nullptr;
    // By row two numbers: what l1 and l2 are multiplied by in it, because its x is not in the units
    // that the penalties are about. Without it, c includes l1 already.
    const double* penalty_shares = nullptr;
    double l1 = 0;
    const std::uint8_t* frozen = nullptr; // by component: whether x keeps it as it is, in all rows

    std::int64_t n_missing(std::int64_t row) const {
        return missing_starts ? missing_starts[row + 1] - missing_starts[row] : 0;
    }

    std::int64_t n_barred(std::int64_t row) const {
        return barred_starts ? barred_starts[row + 1] - barred_starts[row] : 0;
    }

    bool has_own(std::int64_t row) const {
        return penalty_shares || n_missing(row) > 0 || n_barred(row) > 0;
    }

    // Whether the rules for many rows side by side, which know nothing of all this, may have it.
    bool is_plain(std::int64_t row) const { return !frozen && !has_own(row); }
};

// The fixed factor as one row sees it.
template <class T>
struct FactorOfRow {
    FixedFactor<T> fixed;
    double l2;
};

// Where less than this share of a component's mass is left after the missing cells were taken off,
// what is left is summed by itself: a difference would have too few digits.
constexpr double least_share_by_difference = 1.0 / 1024;

// c = sum of the rows of A that row i does not miss, by a difference where that is good enough.
template <class T>
KLNMF_INLINE void observed_sums(const RowConstraints& constraints, const FixedFactor<T>& fixed,
                                std::int64_t n_cols, std::int64_t i, double* c) {
    const std::int64_t* missing = constraints.missing + constraints.missing_starts[i];
    const std::int64_t count = constraints.n_missing(i);
    for (std::int64_t p = 0; p < count; ++p) {
        const T* a = fixed.row(missing[p]);
        for (int k = 0; k < fixed.rank; ++k)
            c[k] -= static_cast<double>(a[k]);
    }
    bool cancelled = false;
    for (int k = 0; k < fixed.rank; ++k)
        cancelled |= c[k] < fixed.c[k] * least_share_by_difference;
    if (!cancelled)
        return;
    for (int k = 0; k < fixed.rank; ++k)
        c[k] = constraints.penalty_shares ? 0 : constraints.l1;
    for (std::int64_t j = 0, p = 0; j < n_cols; ++j) {
        if (p < count && missing[p] == j) {
            ++p;
            continue;
        }
        const T* a = fixed.row(j);
        for (int k = 0; k < fixed.rank; ++k)
            c[k] += static_cast<double>(a[k]);
    }
}

// The slopes and the L2 penalty of row i; slopes of its own are in the scratch until the next call.
// An entry that is barred looks like one of a dead component: its slope is 0.
template <class T>
KLNMF_INLINE FactorOfRow<T>
factor_of_row(const RowConstraints& constraints, const FixedFactor<T>& fixed, double l2,
              std::int64_t n_cols, std::int64_t i, RowScratch<T>& scratch) {
    if (!constraints.has_own(i))
        return {fixed, l2};
    double* c = scratch.own_c;
    for (int k = 0; k < fixed.rank; ++k)
        c[k] = fixed.c[k];
    if (constraints.n_missing(i) > 0)
        observed_sums(constraints, fixed, n_cols, i, c);
    if (constraints.penalty_shares) {
        const double* shares = constraints.penalty_shares + 2 * i;
        for (int k = 0; k < fixed.rank; ++k)
            c[k] += constraints.l1 * shares[0];
        l2 *= shares[1];
    }
    for (std::int64_t p = 0; p < constraints.n_barred(i); ++p)
        c[constraints.barred[constraints.barred_starts[i] + p]] = 0;
    T* inverse_slope = scratch.own_slope + fixed.stride;
    for (std::int64_t k = 0; k < fixed.stride; ++k) {
        const bool moves =
            k < fixed.rank && c[k] > 0 && !(constraints.frozen && constraints.frozen[k]);
        scratch.own_slope[k] = moves ? static_cast<T>(c[k]) : T(0);
        inverse_slope[k] = moves ? static_cast<T>(1 / c[k]) : T(0);
    }
    FactorOfRow<T> result{fixed, l2};
    result.fixed.c = c;
    result.fixed.slope = scratch.own_slope;
    result.fixed.inverse_slope = inverse_slope;
    return result;
}

} // namespace klnmf
