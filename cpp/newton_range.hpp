// Row problems solved to their end over a range of rows: in batches by Newton's method; the few
// that it is not for (very long ones, L2 penalties, sums beyond the range of T, rows with
// constraints of their own) one by one by coordinate descent.
#pragma once

#include <cstdint>
#include <numeric>

#include "inlined.hpp"
#include "newton_batch.hpp"
#include "row_constraints.hpp"
#include "row_tasks.hpp"
#include "rule_guarded.hpp"
#include "rule_multiplicative.hpp"
#include "rule_newton.hpp"

namespace klnmf {

// What one thread needs besides its RowScratch.
template <class T>
struct NewtonScratch {
    explicit NewtonScratch(const RowJob<T>& job)
        : batch(suits_newton(job.fixed) ? job.longest_row : 0,
                suits_newton(job.fixed) ? job.fixed.rank : 0, job.fixed),
          waiting(longest_newton_row<T>() / pass_group + 1), order(job.fixed.rank) {
        std::iota(order.data(), order.data() + job.fixed.rank, 0);
    }

    NewtonBatch<T> batch;
    WaitingRows waiting;
    AlignedArray<std::int32_t> order; // of the visits of coordinate descent
};

constexpr int sweeps_alone = 8;

// Row i alone; `fixed` is the fixed side as it sees it.
template <class T>
KLNMF_INLINE void solve_row_alone(const RowJob<T>& job, std::int64_t i, const FixedSide<T>& fixed,
                                  const NewtonSettings& settings, RowScratch<T>& scratch,
                                  const NewtonScratch<T>& newton) {
    const Row<T> row = load_row(job, i, fixed, scratch);
    if (settings.cold)
        start_evenly(row, scratch);
    const RowOutcome opening = settings.cold && settings.relaxed > 0
                                   ? multiplicative_row(row, settings.relaxed - 1, scratch)
                                   : RowOutcome{0, 0, 0};
    const GuardedSettings sweeps{newton.order.data(), settings.rounds, sweeps_alone,
                                 settings.tolerance, false};
    const RowOutcome outcome = guarded_row(row, sweeps, scratch);
    job.report(i, {0, max_of(opening.kkt, outcome.kkt), max_of(opening.gap, outcome.gap)});
    store_row(job, i, scratch);
}

template <class T>
KLNMF_INLINE void solve_batch(const RowJob<T>& job, const NewtonSettings& settings,
                              RowList together, RowScratch<T>& scratch, NewtonScratch<T>& newton) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    const std::int64_t* const rows = together.rows;
    const int count = static_cast<int>(together.count);
    const FixedSide<T>& fixed = job.fixed;
    NewtonBatch<T>& batch = newton.batch;
    const auto load = [&](const auto* values) KLNMF_INLINE_LAMBDA {
        return fixed.has_products() ? load_batch<true>(job, values, together, batch)
                                    : load_batch<false>(job, values, together, batch);
    };
    job.data.is_wide() ? load(job.data.wide) : load(job.data.values);
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
        constexpr double infinity = Limits<double>::infinity;
        job.kkt[i] = hopeless[l] ? infinity : first_residuals[l];
        job.gap[i] = hopeless[l] ? infinity : gaps[l];
        if (!alone[l])
            for (int k = 0; k < fixed.rank; ++k)
                job.x_row(i)[k] = batch.x.at(k, l) * fixed.inverse_slope[k];
    }
    for (int l = 0; l < count; ++l)
        if (alone[l])
            solve_row_alone(job, rows[l], fixed, settings, scratch, newton);
}

template <class T>
KLNMF_OWN void newton_range(const RowJob<T>& job, const NewtonSettings& settings,
                            const RowTask& task, RowScratch<T>& scratch, NewtonScratch<T>& newton) {
    constexpr std::int64_t lanes = Lanes<T>::count;
    const std::int64_t longest = suits_newton(job.fixed) ? longest_newton_row<T>() : 0;
    newton.waiting.clear();
    for (std::int64_t i = task.begin; i < task.end; ++i) {
        const std::int64_t length = job.data.length(i);
        if (settle_empty_row(job, i))
            job.report(i, {0, 0, 0});
        else if (length > longest || !job.constraints.is_plain(i))
            solve_row_alone(job, i, fixed_side_of_row(job, i, scratch), settings, scratch, newton);
        else
            newton.waiting.add(i, (length - 1) / pass_group);
    }
    const RowList rows = newton.waiting.sorted();
    for (std::int64_t first = 0; first < rows.count; first += lanes)
        solve_batch(job, settings, rows.part(first, lanes), scratch, newton);
}

} // namespace klnmf
