// The rule of rule_guarded.hpp for a batch of short rows: the same visits and the same steps in
// every lane, with choices instead of branches.
#pragma once

#include <cstdint>

#include "inlined.hpp"
#include "row_batch.hpp"
#include "rule_guarded.hpp"

namespace klnmf {

template <class T>
using VisitOfLanes = Visit<typename Lanes<T>::Vector>;

// One pass over the batch: y moves by the pending steps of the slot visited before, and the sums of
// this one are taken at the new y.
template <class T>
KLNMF_INLINE VisitOfLanes<T> visit_lanes(const T* v, T* y, const T* column,
                                         typename Lanes<T>::Vector pending, const T* pending_column,
                                         std::int64_t length) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    // Even and odd nonzeros apart: half the wait for the sum before. The length is even.
    V S{}, h{}, odd_S{}, odd_h{}, top{};
    for (std::int64_t i = 0; i < length * lanes; i += 2 * lanes) {
        const std::int64_t odd = i + lanes;
        visit_nonzeros(v + i, y + i, column + i, pending, pending_column + i, S, h, top);
        visit_nonzeros(v + odd, y + odd, column + odd, pending, pending_column + odd, odd_S, odd_h,
                       top);
    }
    return {S + odd_S, h + odd_h, top};
}

// y of the lanes in `which`, from the gathered columns.
template <class T>
KLNMF_INLINE void recompute_lanes(typename Lanes<T>::Mask which, RowBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    for (std::int64_t i = 0; i < batch.length; ++i) {
        V y{};
        for (int slot = 0; slot < batch.n_slots; ++slot)
            y += load(batch.x.data() + slot * lanes) * load(batch.column(slot) + i * lanes);
        y = load(batch.v.data() + i * lanes) > 0 ? y : V{} + T(1);
        store(batch.y.data() + i * lanes, which ? y : load(batch.y.data() + i * lanes));
    }
}

// What sweeps over a batch carry along.
template <class T>
struct LaneState {
    using V = typename Lanes<T>::Vector;
    using Mask = typename Lanes<T>::Mask;
    V inverse_totals; // 1 / sum of v
    V lost;           // units of rounding that y may have lost
    V violation;      // the largest met in this sweep
    Mask moving;      // lanes that have not arrived yet
    Mask hard{};      // lanes whose sums left the range of T: they are left to the rule for one row
};

template <class T>
using StepOfLanes = Step<typename Lanes<T>::Vector, typename Lanes<T>::Mask>;

// Where the component of a slot goes in every lane: guarded_step with choices instead of branches.
template <class T, class V>
KLNMF_INLINE StepOfLanes<T> lane_step(V x, V c, V inverse_c, const Visit<V>& visit, V lost) {
    using Mask = typename Lanes<T>::Mask;
    const V S = visit.S, h = visit.h, g = c - S;
    const V left = left_numerator(x, S, h, c) * inverse_c;
    const Mask to_left = (g < 0) & (left > x) & (left < Limits<T>::max);
    const V xh = x * h, right = x * (xh / (g + xh));
    const Mask down = (x > 0) & (g > 0);
    const V share = x * visit.top < 1 ? x * visit.top : V{} + T(1), rest = T(1) - share;
    const Mask zero = down & (rest > zero_margin<T>()) & (xh <= g * rest);
    const Mask precise = (lost <= digits_lost_before_zero<T>()) & (rest > zero_margin<T>() * lost);
    const Mask to_right = down & (right > smallest_cover<T>()) & (right < x);
    const V moved = to_left ? left : (zero & precise ? V{} : (to_right ? right : x));
    const V fall = T(1) / (T(1) - share * (T(1) - moved / x));
    return {moved, moved < x ? fall : V{} + T(1), zero & ~precise};
}

// One sweep over the slots; nobody needs y after the last one.
template <class T>
KLNMF_INLINE void sweep_lanes(bool is_first, bool is_last, LaneState<T>& state,
                              RowBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    using Mask = typename Lanes<T>::Mask;
    constexpr int lanes = Lanes<T>::count;
    constexpr T largest = Limits<T>::max;
    state.violation = V{};
    V pending{};
    const T* pending_column = batch.columns.data();
    for (int slot = 0; slot < batch.n_slots; ++slot) {
        T* const x_of_slot = batch.x.data() + slot * lanes;
        const V x = load(x_of_slot), c = load(batch.slope.data() + slot * lanes);
        // What the first sweep has set to 0 needs a screening next, not another visit.
        const Mask visited = state.moving & ((x > 0) | (is_first ? Mask{} == 0 : Mask{}));
        if (!any_lane(visited))
            continue;
        const T* column = batch.column(slot);
        const V inverse_c = load(batch.inverse_slope.data() + slot * lanes);
        VisitOfLanes<T> visit = visit_lanes(batch.v.data(), batch.y.data(), column, pending,
                                            pending_column, batch.length);
        StepOfLanes<T> step = lane_step<T>(x, c, inverse_c, visit, state.lost);
        const Mask imprecise = visited & step.imprecise;
        if (any_lane(imprecise)) {
            recompute_lanes(imprecise, batch);
            state.lost = imprecise ? V{} + T(1) : state.lost;
            visit = visit_lanes(batch.v.data(), batch.y.data(), column, V{}, column, batch.length);
            step = lane_step<T>(x, c, inverse_c, visit, state.lost);
        }
        state.hard |=
            visited & (c < unused_slope<T>()) & ~((visit.h < largest) & (visit.S < largest));
        const V size = entry_residual(x * c * state.inverse_totals, (c - visit.S) * inverse_c);
        state.violation = (visited & (size > state.violation)) ? size : state.violation;

        const Mask moving = visited & ~state.hard;
        const V moved = moving ? step.x : x;
        store(x_of_slot, moved);
        pending = moved - x;
        pending_column = column;
        state.lost = moving ? state.lost * step.fall : state.lost;
        const Mask worn = state.lost > most_digits_lost<T>();
        if (any_lane(worn)) {
            recompute_lanes(worn, batch);
            pending = worn ? V{} : pending;
            state.lost = worn ? V{} + T(1) : state.lost;
        }
    }
    for (std::int64_t i = 0; !is_last && i < batch.length; ++i) {
        T* y = batch.y.data() + i * lanes;
        store(y, load(y) + pending * load(pending_column + i * lanes));
    }
}

// Sweeps until every lane has arrived; returns the lanes that the rule for one row has to take
// over.
template <class T>
KLNMF_INLINE typename Lanes<T>::Mask
guarded_lanes(const GuardedSettings& settings, typename Lanes<T>::Mask moving, RowBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    T inverse_totals[Lanes<T>::count];
    for (int l = 0; l < batch.lanes; ++l)
        inverse_totals[l] =
            batch.rows[l].length > 0 ? static_cast<T>(1 / batch.rows[l].total) : T(0);
    LaneState<T> state{load(inverse_totals), V{} + T(1), V{}, moving};
    const T tolerance = static_cast<T>(settings.tolerance);
    for (int sweep = 0; sweep < settings.sweeps && any_lane(state.moving); ++sweep) {
        sweep_lanes(sweep == 0, sweep == settings.sweeps - 1, state, batch);
        state.moving &= state.violation > tolerance;
    }
    return state.hard;
}

} // namespace klnmf
