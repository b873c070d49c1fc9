// The rule of "srcd" over a range of rows: long rows one by one, short ones in batches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "row_batch.hpp"
#include "row_constraints.hpp"
#include "row_tasks.hpp"
#include "rule_guarded.hpp"
#include "rule_guarded_batch.hpp"

namespace klnmf {

// Lengths and counts of components in use that sorting tells apart.
constexpr std::int64_t key_lengths = 4;
constexpr std::int64_t most_counted = 31;

// What one thread needs besides its RowScratch to work on batches of rows.
template <class T>
struct BatchScratch {
    BatchScratch(std::int64_t longest_row, std::int64_t stride) : batch(longest_row, stride) {
        rows.reserve(rows_per_task);
        sorting.reserve((longest_batched_row / key_lengths + 1) * (most_counted + 1));
    }

    // All of their memory is reserved here: a task must not allocate.
    RowBatch<T> batch;
    std::vector<std::int64_t> rows; // of a task
    SortScratch sorting;
};

// One row alone, to the end.
template <class T>
KLNMF_INLINE void guarded_row_alone(const SparseRows<T>& data, const FixedFactor<T>& fixed,
                                    double l2, const GuardedSettings& settings, std::int64_t i,
                                    bool is_first, RowScratch<T>& scratch, T* x, double* value,
                                    double* kkt, double* gap) {
    T* x_row = x + i * fixed.rank;
    const RowOutcome outcome =
        guarded_row(load_row(data, i, fixed, l2, x_row, scratch), settings, scratch);
    store_row(scratch, fixed.rank, x_row);
    value[i] = outcome.value;
    if (is_first) {
        kkt[i] = outcome.kkt;
        gap[i] = outcome.gap;
    }
}

// One round for a batch of short rows: screening, sweeps, value. Rows that have not arrived stay in
// the list; returns how many of them.
template <class T>
KLNMF_INLINE int guarded_batch(const SparseRows<T>& data, const FixedFactor<T>& fixed,
                               const GuardedSettings& settings, bool is_first, bool is_last,
                               std::int64_t* rows, int count, RowScratch<T>& scratch,
                               RowBatch<T>& batch, T* x, double* value, double* kkt, double* gap) {
    using Mask = typename Lanes<T>::Mask;
    constexpr int lanes = Lanes<T>::count;
    clear_batch(batch);
    Mask moving{}, alone{};
    for (int l = 0; l < count; ++l) {
        RowScratch<T> of_lane = scratch_of_lane(scratch, l, batch);
        T* x_row = x + rows[l] * fixed.rank;
        const Row<T> row = load_row(data, rows[l], fixed, 0.0, x_row, of_lane);
        if (product_and_ratios(row, of_lane)) {
            alone[l] = -1;
            continue;
        }
        if (is_first)
            gap[rows[l]] = gap_of_row(row, of_lane); // screening uses S up
        T residual;
        const int n_active = screen(row, settings.order, of_lane, residual);
        if (is_first)
            kkt[rows[l]] = residual;
        store_row(of_lane, fixed.rank, x_row); // dead components are 0 now
        moving[l] = residual > static_cast<T>(settings.tolerance) ? -1 : 0;
        if (moving[l] || settings.want_value)
            put_row(row, l, x_row, n_active, of_lane.active, batch);
    }
    fill_slots(fixed, settings.order, batch);
    alone |= guarded_lanes(settings, moving, batch);
    double log_sums[lanes];
    if (settings.want_value)
        log_sums_of_lanes(batch, log_sums);
    int left = 0;
    for (int l = 0; l < count; ++l) {
        const std::int64_t i = rows[l];
        if (alone[l]) {
            guarded_row_alone(data, fixed, 0.0, settings, i, is_first, scratch, x, value, kkt, gap);
            continue;
        }
        store_lane(batch, l);
        value[i] =
            settings.want_value
                ? linear_and_quadratic(x + i * fixed.rank, fixed.c, 0.0, fixed.rank) - log_sums[l]
                : 0.0;
        if (moving[l] && !is_last)
            rows[left++] = i;
    }
    return left;
}

// Puts rows in an order in which neighbours have about the same length and about as many components
// in use: a batch costs what its longest row costs, as often as its fullest one is visited.
template <class T>
KLNMF_INLINE void sort_for_batches(const std::int64_t* indptr, std::int64_t longest, const T* x,
                                   int rank, SortScratch& scratch,
                                   std::vector<std::int64_t>& rows) {
    scratch.keys.clear();
    for (const std::int64_t i : rows) {
        int in_use = 0;
        for (int k = 0; k < rank; ++k)
            in_use += x[i * rank + k] > 0;
        const std::int64_t length = indptr[i + 1] - indptr[i];
        const std::int64_t key = (length - 1) / key_lengths * (most_counted + 1) +
                                 std::min<std::int64_t>(in_use, most_counted);
        scratch.keys.push_back(static_cast<std::int32_t>(key));
    }
    sort_by_keys((longest / key_lengths + 1) * (most_counted + 1), scratch, rows);
}

template <class T>
KLNMF_CLONES void guarded_range(const SparseRows<T>& data, const FixedFactor<T>& fixed, double l2,
                                std::int64_t n_cols, const RowConstraints& constraints,
                                const GuardedSettings& settings, std::int64_t begin,
                                std::int64_t end, RowScratch<T>& scratch, BatchScratch<T>& batches,
                                T* x, double* value, double* kkt, double* gap) {
    constexpr int lanes = Lanes<T>::count;
    const std::int64_t longest = l2 == 0 ? longest_batched_row : 0;
    std::vector<std::int64_t>& rows = batches.rows;
    rows.clear();
    for (std::int64_t i = begin; i < end; ++i) {
        T* const x_row = x + i * fixed.rank;
        const bool plain = constraints.is_plain(i);
        value[i] = kkt[i] = gap[i] = 0;
        if (settle_empty_row(data.length(i), fixed, x_row)) {
            if (fixed.held && settings.want_value) {
                const auto [own, own_l2] =
                    factor_of_row(constraints, fixed, l2, n_cols, i, scratch);
                value[i] = linear_and_quadratic(x_row, own.c, own_l2, fixed.rank);
            }
        } else if (plain && data.length(i) <= longest) {
            rows.push_back(i);
        } else {
            const auto [own, own_l2] = factor_of_row(constraints, fixed, l2, n_cols, i, scratch);
            guarded_row_alone(data, own, own_l2, settings, i, true, scratch, x, value, kkt, gap);
        }
    }
    if (rows.empty())
        return;
    sort_for_batches(data.indptr, longest, x, fixed.rank, batches.sorting, rows);
    for (int round = 0; round < settings.rounds && !rows.empty(); ++round) {
        std::size_t left = 0;
        for (std::size_t first = 0; first < rows.size(); first += lanes) {
            const int count = static_cast<int>(std::min<std::size_t>(lanes, rows.size() - first));
            const int kept = guarded_batch(data, fixed, settings, round == 0,
                                           round == settings.rounds - 1, rows.data() + first, count,
                                           scratch, batches.batch, x, value, kkt, gap);
            std::copy_n(rows.begin() + first, kept, rows.begin() + left);
            left += kept;
        }
        rows.resize(left);
    }
}

} // namespace klnmf
