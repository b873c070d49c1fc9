// Value, residual and gap of a row at some x, in double whatever the type of the factors:
//
//     f(x) = sum_k c_k x_k + l2/2 |x|^2 - sum_i v_i log y_i,     y = A x at the nonzeros of v.
#pragma once

#include <cstdint>

#include "inlined.hpp"
#include "objective.hpp"
#include "row_constraints.hpp"
#include "row_gap.hpp"
#include "row_job.hpp"
#include "row_products.hpp"
#include "row_scratch.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

// Nonzeros that share one division, one logarithm and one tree of additions.
constexpr int evaluated_at_once = Lanes<double>::count;

// Nonzeros before their use at which rows of A are fetched, where A is larger than the cache.
constexpr std::int64_t evaluation_fetches_ahead = 16;

KLNMF_INLINE Lanes<double>::Vector fold(Lanes<double>::Wide a) {
    return a;
}

KLNMF_INLINE Lanes<double>::Vector fold(Lanes<float>::Wide a) {
    return __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
}

// The sums over the nonzeros of a row.
struct RowSums {
    double log_sum = 0; // sum_i v_i log y_i
    double total = 0;   // sum_i v_i
    bool covered = true;
};

// Where the nonzeros of a row stand; `available` counts those of the rows after it too.
template <class D>
struct Nonzeros {
    const D* values;
    const std::int32_t* indices;
    std::int64_t length, available;
};

// One pass over the rows of A, which are whole vectors (see PaddedJob). Fills scratch.S_exact
// with S_k = sum_i v_i A_ik / y_i if the residual is wanted. x is in scratch.x. `blocks` is the
// number of vectors in a row of A, known when compiling for the usual ranks, so that x and S stay
// in registers; 0: any number.
template <int blocks, class T, class D>
KLNMF_INLINE RowSums sums_over_row(const Nonzeros<D>& row, const FixedSide<T>& fixed,
                                   bool want_residual, RowScratch<T>& scratch) {
    using Wide = typename Lanes<T>::Wide;
    using Four = Lanes<double>::Vector;
    constexpr int lanes = Lanes<T>::count, group = evaluated_at_once;
    constexpr int in_registers = blocks > 0 ? blocks : 1;
    const std::int64_t stride = blocks > 0 ? blocks * lanes : fixed.stride;
    double* const S_row = scratch.S_exact;
    Wide x[in_registers], S[in_registers];
    if constexpr (blocks > 0) {
#pragma GCC unroll 8
        for (int b = 0; b < blocks; ++b) {
            x[b] = load_lanes<Wide>(scratch.x + b * lanes);
            S[b] = Wide{};
        }
    } else {
        for (std::int64_t k = 0; k < stride; ++k)
            S_row[k] = 0;
    }
    Four log_sum{}, total{};
    Lanes<double>::Mask uncovered{};
    for (std::int64_t i = 0; i < row.length; i += group) {
        Four v{};
        const T* a[group];
        if (i + group <= row.length) {
#pragma GCC unroll 4
            for (int j = 0; j < group; ++j) {
                v[j] = row.values[i + j];
                a[j] = fixed.A + row.indices[i + j] * stride;
            }
        } else { // the rest of the lanes repeat the last nonzero's row; their v is 0
            for (int j = 0; j < group; ++j) {
                const std::int64_t place = i + j < row.length ? i + j : row.length - 1;
                v[j] = i + j < row.length ? static_cast<double>(row.values[place]) : 0.0;
                a[j] = fixed.A + row.indices[place] * stride;
            }
        }
        if (fixed.fetch_ahead && i + evaluation_fetches_ahead + group <= row.available)
            fetch_rows<group>(fixed, row.indices + i + evaluation_fetches_ahead, stride);
        Wide parts[group];
        partial_products<blocks>(a, x, scratch.x, stride, parts);
        const Four folded[group] = {fold(parts[0]), fold(parts[1]), fold(parts[2]), fold(parts[3])};
        const Four product = sum_each(folded);
        const Lanes<double>::Mask used = v > 0;
        uncovered |= used & ~(product > Limits<double>::min);
        const Four y = used ? product : Four{} + 1.0;
        log_sum += v * log_positive(y);
        total += v;
        if (!want_residual)
            continue;
        const Four ratios = v / y;
        if constexpr (blocks > 0) {
#pragma GCC unroll 8
            for (int b = 0; b < blocks; ++b)
#pragma GCC unroll 4
                for (int j = 0; j < group; ++j)
                    S[b] += ratios[j] * load_lanes<Wide>(a[j] + b * lanes);
        } else {
            for (std::int64_t k = 0; k < stride; k += lanes) {
                Wide sum;
                __builtin_memcpy(&sum, S_row + k, sizeof sum);
#pragma GCC unroll 4
                for (int j = 0; j < group; ++j)
                    sum += ratios[j] * load_lanes<Wide>(a[j] + k);
                __builtin_memcpy(S_row + k, &sum, sizeof sum);
            }
        }
    }
    if constexpr (blocks > 0)
#pragma GCC unroll 8
        for (int b = 0; b < blocks; ++b)
            __builtin_memcpy(S_row + b * lanes, &S[b], sizeof S[b]);
    return {sum_lanes(log_sum), sum_lanes(total), !any_lane(uncovered)};
}

template <class T, class D>
KLNMF_OWN RowSums sums_over_row(const Nonzeros<D>& row, const FixedSide<T>& fixed,
                                bool want_residual, RowScratch<T>& scratch) {
    switch (fixed.stride / Lanes<T>::count) {
    case 1:
        return sums_over_row<1>(row, fixed, want_residual, scratch);
    case 2:
        return sums_over_row<2>(row, fixed, want_residual, scratch);
    case 3:
        return sums_over_row<3>(row, fixed, want_residual, scratch);
    case 4:
        return sums_over_row<4>(row, fixed, want_residual, scratch);
    case 5:
        return sums_over_row<5>(row, fixed, want_residual, scratch);
    case 6:
        return sums_over_row<6>(row, fixed, want_residual, scratch);
    default:
        return sums_over_row<0>(row, fixed, want_residual, scratch);
    }
}

// Four numbers in double. One by one: this becomes one instruction, a conversion of a vector many.
template <class T>
KLNMF_INLINE Lanes<double>::Vector load_four(const T* from) {
    return Lanes<double>::Vector{static_cast<double>(from[0]), static_cast<double>(from[1]),
                                 static_cast<double>(from[2]), static_cast<double>(from[3])};
}

// A few nonzeros of a tensor: the rows of A that each has of the first two factors, and where its
// columns stand.
template <class T>
struct NonzerosOfTensor {
    const T *first[evaluated_at_once], *second[evaluated_at_once];
    const std::int32_t* columns[evaluated_at_once];
};

// entries[j] (out) = components k to k + 3 of the row of A of the j-th of them, in double.
template <class T, int group>
KLNMF_INLINE void multiply_four(const FixedSide<T>& fixed, const NonzerosOfTensor<T>& of,
                                std::int64_t k, Lanes<double>::Vector (&entries)[group]) {
#pragma GCC unroll 4
    for (int j = 0; j < group; ++j)
        entries[j] = load_four(of.first[j] + k) * load_four(of.second[j] + k);
    for (int q = 2; q < fixed.n_others; ++q)
#pragma GCC unroll 4
        for (int j = 0; j < group; ++j)
            entries[j] *= load_four(fixed.row(of.columns[j][q * fixed.index_stride]) + k);
}

// sums_over_row for a row of a tensor, whose products are made in double, where they are needed.
// y is the sum over the components that x uses: they are in `n_fours` groups of four, which begin
// at scratch.slots. `fours` is their number where it is known when compiling, else 0.
template <int fours, bool want_residual, class T, class D>
KLNMF_INLINE RowSums sums_over_products(const Nonzeros<D>& row, const FixedSide<T>& fixed,
                                        int n_fours, RowScratch<T>& scratch) {
    using Four = Lanes<double>::Vector;
    constexpr int group = evaluated_at_once;
    for (std::int64_t k = 0; want_residual && k < fixed.stride; ++k)
        scratch.S_exact[k] = 0;
    Four log_sum{}, total{};
    Lanes<double>::Mask uncovered{};
    for (std::int64_t i = 0; i < row.length; i += group) {
        const bool whole = i + group <= row.length;
        Four v{};
        if (whole)
            v = load_four(row.values + i);
        NonzerosOfTensor<T> of;
#pragma GCC unroll 4
        for (int j = 0; j < group; ++j) { // beyond the last nonzero that is repeated, with v = 0
            const std::int64_t place = whole || i + j < row.length ? i + j : row.length - 1;
            if (!whole)
                v[j] = i + j < row.length ? static_cast<double>(row.values[place]) : 0.0;
            of.columns[j] = row.indices + place;
            of.first[j] = fixed.row(of.columns[j][0]);
            of.second[j] = fixed.row(of.columns[j][fixed.index_stride]);
        }
        if (fixed.fetch_ahead && i + evaluation_fetches_ahead + group <= row.available)
            fetch_rows<group, true>(fixed, row.indices + i + evaluation_fetches_ahead,
                                    fixed.stride);
        Four entries[group], parts[group] = {};
#pragma GCC unroll 4
        for (int p = 0; p < (fours > 0 ? fours : n_fours); ++p) {
            multiply_four(fixed, of, scratch.slots[p], entries);
            const Four x = load_four(scratch.x + scratch.slots[p]);
#pragma GCC unroll 4
            for (int j = 0; j < group; ++j)
                parts[j] += entries[j] * x;
        }
        const Four product = sum_each(parts);
        const Lanes<double>::Mask used = v > 0;
        uncovered |= used & ~(product > Limits<double>::min);
        const Four y = used ? product : Four{} + 1.0;
        log_sum += v * log_positive(y);
        total += v;
        const Four ratios = v / y;
        for (std::int64_t k = 0; want_residual && k < fixed.rank; k += 4) {
            multiply_four(fixed, of, k, entries);
            Four sum = load(scratch.S_exact + k);
#pragma GCC unroll 4
            for (int j = 0; j < group; ++j)
                sum += ratios[j] * entries[j];
            store(scratch.S_exact + k, sum);
        }
    }
    return {sum_lanes(log_sum), sum_lanes(total), !any_lane(uncovered)};
}

template <class T, class D>
KLNMF_OWN RowSums sums_over_products(const Nonzeros<D>& row, const FixedSide<T>& fixed,
                                     bool want_residual, RowScratch<T>& scratch) {
    int n_fours = 0;
    for (std::int32_t k = 0; k < fixed.rank; k += 4) {
        scratch.slots[n_fours] = k;
        n_fours += any_lane(load_four(scratch.x + k) > 0);
    }
    if (want_residual)
        return sums_over_products<0, true>(row, fixed, n_fours, scratch);
    switch (n_fours) {
    case 1:
        return sums_over_products<1, false>(row, fixed, n_fours, scratch);
    case 2:
        return sums_over_products<2, false>(row, fixed, n_fours, scratch);
    case 3:
        return sums_over_products<3, false>(row, fixed, n_fours, scratch);
    case 4:
        return sums_over_products<4, false>(row, fixed, n_fours, scratch);
    default:
        return sums_over_products<0, false>(row, fixed, n_fours, scratch);
    }
}

// f(x), its residual and its gap for row i; the latter two are 0 where only the value is wanted.
// Components that are frozen do not count for them.
template <class T>
KLNMF_INLINE RowOutcome evaluate_row(const RowJob<T>& job, std::int64_t i, const T* x,
                                     bool want_residual, RowScratch<T>& scratch) {
    const SparseRows<T>& data = job.data;
    const FixedSide<T>& fixed = fixed_side_of_row(job, i, scratch);
    const std::uint8_t* const frozen = job.constraints.frozen;
    const int rank = fixed.rank;
    const std::int64_t begin = data.begin(i), length = data.length(i);
    const std::int64_t available = data.available(i);
    const std::int32_t* indices = data.indices + begin;
    for (int k = 0; k < rank; ++k)
        scratch.x[k] = x[k];
    const auto sums_over = [&]<class D>(const D* values) KLNMF_INLINE_LAMBDA {
        const Nonzeros<D> row{values + begin, indices, length, available};
        return fixed.has_products() ? sums_over_products(row, fixed, want_residual, scratch)
                                    : sums_over_row(row, fixed, want_residual, scratch);
    };
    const RowSums sums = data.is_wide() ? sums_over(data.wide) : sums_over(data.values);
    if (!sums.covered) {
        constexpr double infinity = Limits<double>::infinity;
        return {infinity, infinity, infinity};
    }
    RowOutcome outcome{linear_and_quadratic(fixed, x) - sums.log_sum, 0, 0};
    if (!want_residual)
        return outcome;
    const double* S = scratch.S_exact;
    for (int k = 0; length > 0 && k < rank; ++k) {
        if (frozen && frozen[k])
            continue;
        const double g = fixed.c[k] + fixed.l2 * static_cast<double>(x[k]) - S[k];
        const double residual = entry_residual(x[k], fixed.c[k], g, sums.total);
        outcome.kkt = residual > outcome.kkt ? residual : outcome.kkt;
    }
    outcome.gap = row_gap(fixed, x, S, frozen, sums.total);
    return outcome;
}

} // namespace klnmf
