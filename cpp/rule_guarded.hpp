// "srcd": coordinate descent with steps that cannot overshoot, on the coordinates that may move.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "coordinate_steps.hpp"
#include "inlined.hpp"
#include "newton_row.hpp"
#include "row_gather.hpp"
#include "row_problem.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

struct GuardedSettings {
    const std::int32_t* order; // a permutation of the components, shared by all rows of a half-step
    int rounds;                // screening passes at most, each followed by `sweeps` sweeps
    int sweeps;
    double tolerance; // a row is left alone once its residual is at most this
    bool want_value;
};

// Sums of one visit, S = sum v a / y and h = sum v a^2 / y^2, and the largest a / y: x times that
// is the largest share that the component has in any y. V is a number, or a vector of one for each
// row of a batch.
template <class V>
struct Visit {
    V S, h, top;
};

// Moves the y of a vector of nonzeros by the pending step, and adds their terms at the new y.
template <class T, class V>
KLNMF_INLINE void visit_nonzeros(const T* v, T* y, const T* column, V pending,
                                 const T* pending_column, V& S, V& h, V& top) {
    const V moved = load(y) + pending * load(pending_column);
    store(y, moved);
    const V t = load(column) / moved;
    const V vt = load(v) * t;
    S += vt;
    h += vt * t;
    top = larger(t, top);
}

// One pass over the row: y moves by the pending step of the component visited before, and the sums
// of this one are taken at the new y.
template <class T>
KLNMF_INLINE Visit<T> visit_column(const T* v, T* y, const T* column, T pending,
                                   const T* pending_column, std::int64_t length) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    double S_total = 0, h_total = 0;
    V top{};
    for (std::int64_t start = 0; start < length; start += piece) {
        const std::int64_t end = min_of(start + piece, length);
        V S{}, h{};
        for (std::int64_t i = start; i < end; i += lanes)
            visit_nonzeros(v + i, y + i, column + i, V{} + pending, pending_column + i, S, h, top);
        const auto sums = sum_both(S, h);
        if (length <= piece)
            return {sums.first, sums.second, largest_lane(top)};
        S_total += static_cast<double>(sums.first);
        h_total += static_cast<double>(sums.second);
    }
    return {static_cast<T>(S_total), static_cast<T>(h_total), largest_lane(top)};
}

// The same sums in double, for the rare column whose squares overflow a float.
template <class T>
KLNMF_INLINE Visit<double> visit_in_double(const T* v, const T* y, const T* column,
                                           std::int64_t length) {
    double S = 0, h = 0;
    for (std::int64_t i = 0; i < length; ++i) {
        const double t = static_cast<double>(column[i]) / static_cast<double>(y[i]);
        S += static_cast<double>(v[i]) * t;
        h += static_cast<double>(v[i]) * t * t;
    }
    return {S, h, 0};
}

// y is updated by differences, and a y_i that falls to a share 1/q of what it was computed as has
// lost q units of rounding. Where that product of all falls may have passed this, y is computed
// anew.
template <class T>
KLNMF_INLINE constexpr T most_digits_lost() {
    return sizeof(T) == 4 ? T(512) : T(1e6);
}

// A component is set to 0 only on the word of a y that is this good.
template <class T>
KLNMF_INLINE constexpr T digits_lost_before_zero() {
    return 8;
}

// Share of a y that must be left when a component is set to 0, for each unit of rounding that the
// y may have lost.
template <class T>
KLNMF_INLINE constexpr T zero_margin() {
    return Limits<T>::epsilon * T(100);
}

// y from the gathered columns of all active components.
template <class T>
KLNMF_INLINE void recompute_product(const Row<T>& row, int n_active, bool gathered,
                                    RowScratch<T>& scratch) {
    if (!gathered) {
        product(row, scratch.x, scratch);
        return;
    }
    for (std::int64_t i = 0; i < row.padded_length; ++i)
        scratch.y[i] = scratch.v[i] > 0 ? T(0) : T(1);
    for (int j = 0; j < n_active; ++j)
        if (scratch.x[scratch.active[j]] != 0)
            move_product(scratch.y, scratch.x[scratch.active[j]],
                         scratch.columns + scratch.slots[j] * row.padded_length, row.padded_length);
}

// V is a number, or a vector of one for each row of a batch; Mask says yes or no of each.
template <class V, class Mask = bool>
struct Step {
    V x;            // where the component goes
    V fall;         // bound on the largest y_i before over after
    Mask imprecise; // it would have been set to 0, had y been better known
};

// Where component k goes, whose gathered column is given.
//
// It is set to 0 where f' >= 0 there for certain: with q its largest share of any y,
//     S(0) = sum_i v_i a_i / (y_i - x a_i) <= S + x h / (1 - q) <= c.
// An entry that wants to be 0 and does not pass shrinks, and passes at one of its next visits.
template <class T>
KLNMF_INLINE Step<T> guarded_step(const Row<T>& row, int k, Visit<T> visit, const T* column, T lost,
                                  const RowScratch<T>& scratch) {
    const T x = scratch.x[k], S = visit.S, h = visit.h, c = row.fixed.slope[k];
    constexpr T largest = Limits<T>::max;
    if (!(h < largest) || !(S < largest)) {
        const Visit<double> exact =
            visit_in_double(scratch.v, scratch.y, column, row.padded_length);
        const double moved = exact.S > c + row.fixed.l2 * x
                                 ? step_from_left<double>(x, exact.S, exact.h, c, row.fixed.l2)
                                 : step_from_right<double>(x, exact.S, exact.h, c, row.fixed.l2);
        if (!(moved > smallest_cover<T>() && moved < largest))
            return {x, 1, false};
        return {static_cast<T>(moved), moved < x ? static_cast<T>(x / moved) : T(1), false};
    }
    const T g = c + static_cast<T>(row.fixed.l2) * x - S;
    if (g < 0) {
        const T moved = row.fixed.l2 == 0
                            ? left_numerator(x, S, h, c) * row.fixed.inverse_slope[k]
                            : static_cast<T>(step_from_left<double>(x, S, h, c, row.fixed.l2));
        // Rounding of S against h must not turn a step to the right into one to the left.
        return {moved > x && moved < largest ? moved : x, 1, false};
    }
    if (x == 0 || g == 0)
        return {x, 1, false};
    const T share = min_of(x * visit.top, T(1)), rest = 1 - share;
    const bool zero = rest > zero_margin<T>() && x * h <= (c - S) * rest;
    if (zero && lost <= digits_lost_before_zero<T>() && rest > zero_margin<T>() * lost)
        return {0, 1 / rest, false};
    const T moved = row.fixed.l2 == 0
                        ? step_from_right<T>(x, S, h, c, 0)
                        : static_cast<T>(step_from_right<double>(x, S, h, c, row.fixed.l2));
    if (!(moved > smallest_cover<T>()) || !(moved < x))
        return {x, 1, zero};
    return {moved, 1 / (1 - share * (1 - moved / x)), zero};
}

// One sweep over the active components; returns the largest violation it met. `lost` (in/out)
// counts the units of rounding that y may have lost. Rows longer than the tile have their columns
// gathered a group at a time.
template <class T>
KLNMF_INLINE T guarded_sweep(const Row<T>& row, int n_active, bool gathered, T& lost,
                             RowScratch<T>& scratch) {
    const std::int64_t length = row.padded_length;
    const int group = static_cast<int>(
        gathered ? n_active : min_of<std::int64_t>(scratch.columns_at_once(row.length), n_active));
    const T inverse_total = static_cast<T>(1 / row.total), l2 = static_cast<T>(row.fixed.l2);
    T* x = scratch.x;
    T violation = 0;
    for (int first = 0; first < n_active; first += group) {
        const int count = min_of(group, n_active - first);
        if (!gathered)
            gather_columns(row, scratch.active + first, count, scratch);
        T pending = 0;
        const T* pending_column = scratch.columns;
        for (int j = 0; j < count; ++j) {
            const int k = scratch.active[first + j];
            if (row.fixed.holds(k))
                continue;
            const T* column = scratch.columns + (gathered ? scratch.slots[j] : j) * length;
            Visit<T> visit =
                visit_column(scratch.v, scratch.y, column, pending, pending_column, length);
            Step<T> step = guarded_step(row, k, visit, column, lost, scratch);
            if (step.imprecise) {
                recompute_product(row, n_active, gathered, scratch);
                lost = 1;
                visit = visit_column(scratch.v, scratch.y, column, T(0), column, length);
                step = guarded_step(row, k, visit, column, lost, scratch);
            }
            const T c = row.fixed.slope[k];
            violation = max_of(
                violation, entry_residual(x[k] * c * inverse_total,
                                          (c + l2 * x[k] - visit.S) * row.fixed.inverse_slope[k]));
            pending = step.x - x[k];
            pending_column = column;
            x[k] = step.x;
            lost *= step.fall;
            if (lost > most_digits_lost<T>()) {
                recompute_product(row, n_active, gathered, scratch);
                pending = 0;
                lost = 1;
            }
        }
        if (pending != 0)
            move_product(scratch.y, pending, pending_column, length);
    }
    return violation;
}

// Lists the components that a half-step has to visit: those in use, and those whose gradient says
// that they would grow. Returns their number, and the residual over all components; S_before
// becomes the gradient. A dead component is set to 0; one that is held is listed if it is in use,
// for its part in y.
template <class T>
KLNMF_INLINE int screen(const Row<T>& row, const std::int32_t* order, RowScratch<T>& scratch,
                        T& residual) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    const T inverse_total = static_cast<T>(1 / row.total), l2 = static_cast<T>(row.fixed.l2);
    V worst{};
    for (std::int64_t k = 0; k < row.fixed.stride; k += lanes) {
        const AtComponents<T> at = settle_dead(row, k, inverse_total, l2, scratch);
        worst = larger(at.violation, worst);
        store(scratch.S_before + k, at.gradient);
        // From here on: negative where active.
        store(scratch.S + k, at.x > 0 ? V{} - T(1) : (at.slope > 0 ? at.gradient : V{}));
    }
    residual = largest_lane(worst);
    int n_active = 0;
    for (int j = 0; j < row.fixed.rank; ++j) {
        scratch.active[n_active] = order[j];
        n_active += !(scratch.S[order[j]] >= 0);
    }
    return n_active;
}

// Takes the components that a sweep has set to 0 off the list: what they need next is a screening,
// not another visit. Returns how many are left.
template <class T>
KLNMF_INLINE int drop_zeros(int n_active, RowScratch<T>& scratch) {
    int kept = 0;
    for (int j = 0; j < n_active; ++j) {
        scratch.active[kept] = scratch.active[j];
        scratch.slots[kept] = scratch.slots[j];
        kept += scratch.x[scratch.active[j]] > 0;
    }
    return kept;
}

// Rows longer than the tile would have their columns gathered a few at a time, again and again:
// they take one step of Newton's method instead of the sweeps, unless some components are held.
template <class T>
KLNMF_INLINE bool takes_newton_step(const Row<T>& row, int n_active) {
    return row.length > tile && n_active <= most_newton_components && !row.fixed.held;
}

template <class T>
KLNMF_OWN RowOutcome guarded_row(const Row<T>& row, const GuardedSettings& settings,
                                 RowScratch<T>& scratch) {
    constexpr double infinity = Limits<double>::infinity;
    const T tolerance = static_cast<T>(settings.tolerance);
    RowOutcome outcome{0, 0, 0};
    bool hopeless = false;
    int n_active = 0;
    bool gathered = false, has_value = false;
    for (int round = 0; round < settings.rounds; ++round) {
        if (product_and_ratios(row, scratch)) {
            hopeless |= restart_uncovered_row(row, scratch);
            outcome.kkt = outcome.gap = infinity;
            has_value = false;
        } else if (round == 0) {
            outcome.gap = gap_of_row(row, scratch);
        }
        T residual;
        n_active = screen(row, settings.order, scratch, residual);
        if (round == 0)
            outcome.kkt = max_of<double>(outcome.kkt, residual);
        const bool done = residual <= tolerance;
        if (done && has_value)
            break;
        if (!done && takes_newton_step(row, n_active)) {
            has_value = newton_step(row, n_active, settings.want_value, scratch, outcome.value);
            if (has_value)
                continue;
        }
        gathered = n_active <= scratch.columns_at_once(row.length);
        if (gathered && (!done || settings.want_value))
            gather_active(row, n_active, scratch);
        if (done)
            break;
        T lost = 1;
        for (int sweep = 0; sweep < settings.sweeps; ++sweep) {
            const T violation = guarded_sweep(row, n_active, gathered, lost, scratch);
            n_active = drop_zeros(n_active, scratch);
            if (violation <= tolerance)
                break;
        }
    }
    if (hopeless)
        outcome.value = infinity;
    else if (settings.want_value && !has_value)
        outcome.value = exact_value(row, scratch.active, n_active, gathered, scratch);
    return outcome;
}

} // namespace klnmf
