// The fixed side as a row with constraints of its own sees it.
#pragma once

#include <cstdint>

#include "inlined.hpp"
#include "row_job.hpp"
#include "row_scratch.hpp"

namespace klnmf {

// Where less than this share of a component's mass is left after the missing cells were taken off,
// what is left is summed by itself: a difference would have too few digits.
constexpr double least_share_by_difference = 1.0 / 1024;

// Entry k of c of a tensor's row without penalties and without any difference: the sum of the
// products of rows of A over the cells of factors q, q + 1, ... whose columns are not among the
// `count` ones at `missing`. Rows of factor q begin at `first`. Where none is missing, the sum is a
// product of column sums.
template <class T>
double observed_sum(const RowJob<T>& job, std::int64_t k, int q, std::int64_t first,
                    const std::int64_t* missing, std::int64_t count);

// The same for all components by a difference, where that is good enough.
template <class T>
KLNMF_INLINE void observed_sums_of_tensor(const RowJob<T>& job, std::int64_t i, double* c) {
    const RowConstraints& constraints = job.constraints;
    const FixedSide<T>& fixed = job.fixed;
    const std::int64_t* missing = constraints.missing + constraints.missing_starts[i];
    const std::int64_t count = constraints.n_missing(i);
    for (std::int64_t p = 0; p < count; ++p)
        for (int k = 0; k < fixed.rank; ++k) {
            double product = 1;
            for (int q = 0; q < constraints.n_sizes; ++q)
                product *= fixed.row(missing[q * constraints.missing_stride + p])[k];
            c[k] -= product;
        }
    for (int k = 0; k < fixed.rank; ++k)
        if (c[k] < fixed.c[k] * least_share_by_difference)
            c[k] = observed_sum(job, k, 0, 0, missing, count) +
                   (constraints.penalty_shares ? 0 : constraints.l1);
}

// c = sum of the rows of A that row i does not miss, by a difference where that is good enough.
template <class T>
KLNMF_INLINE void observed_sums(const RowJob<T>& job, std::int64_t i, double* c) {
    const RowConstraints& constraints = job.constraints;
    if (constraints.n_sizes > 1)
        return observed_sums_of_tensor(job, i, c);
    const FixedSide<T>& fixed = job.fixed;
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
    for (std::int64_t j = 0, p = 0; j < fixed.n_rows; ++j) {
        if (p < count && missing[p] == j) {
            ++p;
            continue;
        }
        const T* a = fixed.row(j);
        for (int k = 0; k < fixed.rank; ++k)
            c[k] += static_cast<double>(a[k]);
    }
}

// The fixed side with the slopes and the L2 penalty of row i; one of its own is in the scratch
// until the next call. An entry that is barred looks like one of a dead component: its slope is 0.
template <class T>
KLNMF_INLINE const FixedSide<T>& fixed_side_of_row(const RowJob<T>& job, std::int64_t i,
                                                   RowScratch<T>& scratch) {
    const RowConstraints& constraints = job.constraints;
    if (!constraints.has_own(i))
        return job.fixed;
    FixedSide<T>& fixed = *scratch.own;
    fixed = job.fixed;
    double* c = scratch.own_c;
    for (int k = 0; k < fixed.rank; ++k)
        c[k] = fixed.c[k];
    if (constraints.n_missing(i) > 0)
        observed_sums(job, i, c);
    if (constraints.penalty_shares) {
        const double* shares = constraints.penalty_shares + 2 * i;
        for (int k = 0; k < fixed.rank; ++k)
            c[k] += constraints.l1 * shares[0];
        fixed.l2 *= shares[1];
    }
    for (std::int64_t p = 0; p < constraints.n_barred(i); ++p)
        c[constraints.barred[constraints.barred_starts[i] + p]] = 0;
    T* const slope = scratch.own_slope;
    T* const inverse_slope = slope + fixed.stride;
    for (std::int64_t k = 0; k < fixed.stride; ++k) {
        const bool moves =
            k < fixed.rank && c[k] > 0 && !(constraints.frozen && constraints.frozen[k]);
        slope[k] = moves ? static_cast<T>(c[k]) : T(0);
        inverse_slope[k] = moves ? static_cast<T>(1 / c[k]) : T(0);
    }
    fixed.c = c;
    fixed.slope = slope;
    fixed.inverse_slope = inverse_slope;
    return fixed;
}

} // namespace klnmf
