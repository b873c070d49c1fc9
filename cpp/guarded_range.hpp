// The rule of "srcd" over a range of rows: long rows one by one, short ones in batches.
#pragma once

#include <cstdint>

#include "inlined.hpp"
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
    explicit BatchScratch(const RowJob<T>& job)
        : batch(job.longest_row, job.fixed),
          waiting((longest_batched_row / key_lengths + 1) * (most_counted + 1)) {}

    RowBatch<T> batch;
    WaitingRows waiting;
};

// Row i alone, to the end; `fixed` is the fixed side as it sees it.
template <class T>
KLNMF_INLINE void guarded_row_alone(const RowJob<T>& job, std::int64_t i, const FixedSide<T>& fixed,
                                    const GuardedSettings& settings, bool is_first,
                                    RowScratch<T>& scratch) {
    const RowOutcome outcome = guarded_row(load_row(job, i, fixed, scratch), settings, scratch);
    store_row(job, i, scratch);
    if (is_first)
        job.report(i, outcome);
    else
        job.value[i] = outcome.value;
}

// One round for a batch of short rows: screening, sweeps, value. Rows that have not arrived stay in
// the list; returns how many of them.
template <class T>
KLNMF_INLINE int guarded_batch(const RowJob<T>& job, const GuardedSettings& settings, int round,
                               RowList together, RowScratch<T>& scratch, RowBatch<T>& batch) {
    using Mask = typename Lanes<T>::Mask;
    constexpr int lanes = Lanes<T>::count;
    std::int64_t* const rows = together.rows;
    const int count = static_cast<int>(together.count);
    const bool is_first = round == 0, is_last = round == settings.rounds - 1;
    clear_batch(batch);
    Mask moving{}, alone{};
    for (int l = 0; l < count; ++l) {
        const std::int64_t i = rows[l];
        RowScratch<T> of_lane = scratch_of_lane(scratch, l, batch);
        const Row<T> row = load_row(job, i, job.fixed, of_lane);
        if (product_and_ratios(row, of_lane)) {
            alone[l] = -1;
            continue;
        }
        if (is_first)
            job.gap[i] = gap_of_row(row, of_lane); // screening uses S up
        T residual;
        const int n_active = screen(row, settings.order, of_lane, residual);
        if (is_first)
            job.kkt[i] = residual;
        store_row(job, i, of_lane); // dead components are 0 now
        moving[l] = residual > static_cast<T>(settings.tolerance) ? -1 : 0;
        if (moving[l] || settings.want_value)
            put_row(row, l, job.x_row(i), n_active, of_lane.active, batch);
    }
    fill_slots(job.fixed, settings.order, batch);
    alone |= guarded_lanes(settings, moving, batch);
    double log_sums[lanes];
    if (settings.want_value)
        log_sums_of_lanes(batch, log_sums);
    int left = 0;
    for (int l = 0; l < count; ++l) {
        const std::int64_t i = rows[l];
        if (alone[l]) {
            guarded_row_alone(job, i, job.fixed, settings, is_first, scratch);
            continue;
        }
        store_lane(batch, l);
        job.value[i] =
            settings.want_value ? linear_and_quadratic(job.fixed, job.x_row(i)) - log_sums[l] : 0.0;
        if (moving[l] && !is_last)
            rows[left++] = i;
    }
    return left;
}

// Tells apart rows that cost different amounts in a batch: by length, and by how many components
// are in use.
template <class T>
KLNMF_INLINE std::int64_t batch_key(const RowJob<T>& job, std::int64_t i) {
    const T* const x = job.x_row(i);
    int in_use = 0;
    for (int k = 0; k < job.fixed.rank; ++k)
        in_use += x[k] > 0;
    return (job.data.length(i) - 1) / key_lengths * (most_counted + 1) +
           min_of<std::int64_t>(in_use, most_counted);
}

template <class T>
KLNMF_OWN void guarded_range(const RowJob<T>& job, const GuardedSettings& settings,
                             const RowTask& task, RowScratch<T>& scratch,
                             BatchScratch<T>& batches) {
    constexpr std::int64_t lanes = Lanes<T>::count;
    const std::int64_t longest = job.fixed.l2 == 0 ? longest_batched_row : 0;
    batches.waiting.clear();
    for (std::int64_t i = task.begin; i < task.end; ++i) {
        job.report(i, {0, 0, 0});
        if (settle_empty_row(job, i)) {
            if (job.fixed.held && settings.want_value)
                job.value[i] =
                    linear_and_quadratic(fixed_side_of_row(job, i, scratch), job.x_row(i));
        } else if (job.constraints.is_plain(i) && job.data.length(i) <= longest) {
            batches.waiting.add(i, batch_key(job, i));
        } else {
            guarded_row_alone(job, i, fixed_side_of_row(job, i, scratch), settings, true, scratch);
        }
    }
    RowList rows = batches.waiting.sorted();
    for (int round = 0; round < settings.rounds && rows.count > 0; ++round) {
        std::int64_t left = 0;
        for (std::int64_t first = 0; first < rows.count; first += lanes) {
            const RowList together = rows.part(first, lanes);
            const int kept = guarded_batch(job, settings, round, together, scratch, batches.batch);
            for (int j = 0; j < kept; ++j)
                rows.rows[left++] = together.rows[j];
        }
        rows.count = left;
    }
}

} // namespace klnmf
