// Row problems solved to their end over a range of rows: in batches by Newton's method; the few
// that it is not for (very long ones, L2 penalties, sums beyond the range of T, rows with
// constraints of their own) one by one by coordinate descent.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "newton_batch.hpp"
#include "row_constraints.hpp"
#include "row_tasks.hpp"
#include "rule_guarded.hpp"
#include "rule_multiplicative.hpp"
#include "rule_newton.hpp"

namespace klnmf {

// What one thread needs besides its RowScratch. All memory is reserved here: a task must not
// allocate.
template <class T>
struct NewtonScratch {
    NewtonScratch(std::int64_t longest_row, int rank, std::int64_t stride, bool batched)
        : batch(batched ? longest_row : 0, batched ? rank : 0, stride) {
        rows.reserve(rows_per_task);
        sorting.reserve(longest_newton_row<T>() / pass_group + 1);
        for (int k = 0; k < rank; ++k)
            order.push_back(k);
    }

    NewtonBatch<T> batch;
    std::vector<std::int64_t> rows; // of a task
    SortScratch sorting;
    std::vector<std::int32_t> order; // of the visits of coordinate descent
};

constexpr int sweeps_alone = 8;

template <class T>
KLNMF_INLINE void solve_row_alone(const SparseRows<T>& data, const FixedFactor<T>& fixed, double l2,
                                  const NewtonSettings& settings, const std::int32_t* order,
                                  std::int64_t i, RowScratch<T>& scratch, T* x, double* kkt,
                                  double* gap) {
    T* x_row = x + i * fixed.rank;
    const Row<T> row = load_row(data, i, fixed, l2, x_row, scratch);
    if (settings.cold)
        start_evenly(row, scratch);
    const RowOutcome opening = settings.cold && settings.relaxed > 0
                                   ? multiplicative_row(row, settings.relaxed - 1, scratch)
                                   : RowOutcome{0, 0, 0};
    const GuardedSettings sweeps{order, settings.rounds, sweeps_alone, settings.tolerance, false};
    const RowOutcome outcome = guarded_row(row, sweeps, scratch);
    kkt[i] = std::max(opening.kkt, outcome.kkt);
    gap[i] = std::max(opening.gap, outcome.gap);
    store_row(scratch, fixed.rank, x_row);
}

template <class T>
KLNMF_INLINE void solve_batch(const SparseRows<T>& data, const FixedFactor<T>& fixed,
                              const NewtonSettings& settings, const std::int64_t* rows, int count,
                              RowScratch<T>& scratch, NewtonScratch<T>& newton, T* x, double* kkt,
                              double* gap) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    NewtonBatch<T>& batch = newton.batch;
    if (data.is_wide())
        load_batch(data, data.wide, fixed, rows, count, x, batch);
    else
        load_batch(data, data.values, fixed, rows, count, x, batch);
    typename Lanes<T>::Mask alone{}, hopeless{}; // alone: lanes that this is not for
    if (settings.cold) {
        start_evenly(fixed, batch);
        pass_over(batch, hopeless);
        if (any_lane(hopeless))
            drop_uncovered(batch);
        alone = relaxed_steps(settings.relaxed, batch);
    } else {
        pass_over(batch, alone);
    }
    double gaps[lanes];
    gaps_of_lanes(batch, gaps);
    V first_residuals{};
    alone |= newton_steps(settings, first_residuals, batch);
    for (int l = 0; l < count; ++l) {
        const std::int64_t i = rows[l];
        constexpr double infinity = std::numeric_limits<double>::infinity();
        kkt[i] = hopeless[l] ? infinity : first_residuals[l];
        gap[i] = hopeless[l] ? infinity : gaps[l];
        if (!alone[l])
            for (int k = 0; k < fixed.rank; ++k)
                x[i * fixed.rank + k] = batch.x.data()[k * lanes + l] * fixed.inverse_slope[k];
    }
    for (int l = 0; l < count; ++l)
        if (alone[l])
            solve_row_alone(data, fixed, 0.0, settings, newton.order.data(), rows[l], scratch, x,
                            kkt, gap);
}

template <class T>
KLNMF_CLONES void newton_range(const SparseRows<T>& data, const FixedFactor<T>& fixed, double l2,
                               std::int64_t n_cols, const RowConstraints& constraints,
                               const NewtonSettings& settings, std::int64_t begin, std::int64_t end,
                               RowScratch<T>& scratch, NewtonScratch<T>& newton, T* x, double* kkt,
                               double* gap) {
    constexpr int lanes = Lanes<T>::count;
    const std::int64_t longest = suits_newton(fixed.rank, l2) ? longest_newton_row<T>() : 0;
    std::vector<std::int64_t>& rows = newton.rows;
    rows.clear();
    newton.sorting.keys.clear();
    for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t length = data.length(i);
        kkt[i] = gap[i] = 0;
        if (settle_empty_row(length, fixed, x + i * fixed.rank))
            continue;
        if (length > longest || !constraints.is_plain(i)) {
            const auto [own, own_l2] = factor_of_row(constraints, fixed, l2, n_cols, i, scratch);
            solve_row_alone(data, own, own_l2, settings, newton.order.data(), i, scratch, x, kkt,
                            gap);
        } else {
            rows.push_back(i);
            newton.sorting.keys.push_back(static_cast<std::int32_t>((length - 1) / pass_group));
        }
    }
    // A batch costs what its longest row costs.
    sort_by_keys(longest / pass_group + 1, newton.sorting, rows);
    for (std::size_t first = 0; first < rows.size(); first += lanes) {
        const int count = static_cast<int>(std::min<std::size_t>(lanes, rows.size() - first));
        solve_batch(data, fixed, settings, rows.data() + first, count, scratch, newton, x, kkt,
                    gap);
    }
}

} // namespace klnmf
