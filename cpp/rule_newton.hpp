// The row problem solved to its end, for a batch of rows: over-relaxed multiplicative steps while
// every component is in use, then Newton's method with the constraint x >= 0.
//
// A Newton step goes to the minimum over x + d >= 0 of the model  g.d + d^T M d / 2,  M = sum_i v_i
// a_i a_i^T / y_i^2: few sweeps of coordinate descent on a matrix of rank x rank numbers, without
// the nonzeros. It is taken only where it is certain to descend (see `surely_descends`).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "inlined.hpp"
#include "newton_batch.hpp"

namespace klnmf {

struct NewtonSettings {
    bool cold;        // x (in) means nothing: begin with the same share of every component
    int relaxed;      // over-relaxed multiplicative steps before the first Newton step, if cold
    int rounds;       // Newton steps at most
    double tolerance; // a row is left alone once its residual is at most this
};

// Sweeps over the model at most, and the share of the first sweep's largest move below which they
// end: the first model of a row is not worth as many sweeps as those near the minimum.
constexpr int most_model_sweeps = 16;
constexpr double last_move_of_first_model = 0.2, last_move_of_model = 0.05;

// Slopes of f along a way, in every lane.
template <class T>
struct LaneSums {
    using V = typename Lanes<T>::Vector;
    V before; // -grad f(x_before) . (x - x_before): the slope at the start of the way, as a fall
    V after;  // grad f(x) . (x - x_before): the slope at its end
};

template <class T>
KLNMF_INLINE LaneSums<T> slopes_of_way(const NewtonBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    LaneSums<T> sums{};
    for (int k = 0; k < batch.rank; ++k) {
        const V moved = batch.x[k] - batch.x_before[k];
        sums.before += (batch.S_before[k] - T(1)) * moved;
        sums.after += (T(1) - batch.S[k]) * moved;
    }
    return sums;
}

// Rounding of the sums above, in units of the row's total.
template <class T>
KLNMF_INLINE constexpr T slope_rounding() {
    return 16 * Limits<T>::epsilon;
}

// The start of a way: x and S there.
template <class T>
KLNMF_INLINE void remember(NewtonBatch<T>& batch) {
    for (int k = 0; k < batch.rank; ++k) {
        batch.x_before.set(k, batch.x[k]);
        batch.S_before.set(k, batch.S[k]);
    }
}

// And y.
template <class T>
KLNMF_INLINE void remember_products(NewtonBatch<T>& batch) {
    for (std::int64_t i = 0; i < batch.length; ++i)
        batch.y_before.set(i, batch.y[i]);
}

// x = x_before S_before in the lanes of `which`: the plain step, which never raises f.
template <class T>
KLNMF_INLINE void step_plainly(typename Lanes<T>::Mask which, NewtonBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    for (int k = 0; k < batch.rank; ++k) {
        const V moved = batch.x_before[k] * batch.S_before[k];
        const V x = moved > smallest_cover<T>() ? moved : V{};
        batch.x.set(k, which ? x : batch.x[k]);
    }
}

// x_k <- x_k S_k^p, scaled to the row's total.
enum class Power { three_halves, two, three };
template <class T>
KLNMF_INLINE void step_relaxed(Power power, NewtonBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    V masses{};
    for (int k = 0; k < batch.rank; ++k) {
        const V S = batch.S[k], once = batch.x[k] * S;
        V factor = S;
        if (power == Power::three)
            factor = S * S;
        if (power == Power::three_halves)
            for (int l = 0; l < lanes; ++l)
                factor[l] = square_root(S[l]);
        const V moved = once * factor;
        const V x = moved > smallest_cover<T>() ? moved : V{};
        batch.x.set(k, x);
        masses += x;
    }
    const V scale = masses > 0 ? load(batch.totals_of_lanes) / masses : V{};
    for (int k = 0; k < batch.rank; ++k)
        batch.x.set(k, batch.x[k] * scale);
}

// The relaxed steps of a cold start: S^3 once, S^2, and S^1.5 at last, which damps what the others
// may have set swinging. Nobody knows f where they begin, so none is tested; Newton's steps, which
// are, follow. Where one leaves a nonzero without cover, a plain step takes its place. On entry and
// on return y and S belong to x. Returns the lanes without cover.
template <class T>
KLNMF_INLINE typename Lanes<T>::Mask relaxed_steps(int count, NewtonBatch<T>& batch) {
    using Mask = typename Lanes<T>::Mask;
    Mask uncovered{};
    for (int step = 1; step <= count; ++step) {
        const Power power = count == 1      ? Power::two
                            : step == 1     ? Power::three
                            : step == count ? Power::three_halves
                                            : Power::two;
        remember(batch);
        step_relaxed(power, batch);
        pass_over(batch, uncovered);
        if (any_lane(uncovered)) {
            step_plainly(uncovered, batch);
            pass_over(batch, uncovered);
        }
    }
    return uncovered;
}

// The largest violation of the optimality conditions at x in every lane.
template <class T>
KLNMF_INLINE typename Lanes<T>::Vector residuals(const NewtonBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    const V totals = load(batch.totals_of_lanes), inverse_totals = totals > 0 ? T(1) / totals : V{};
    V worst{};
    for (int k = 0; k < batch.rank; ++k) {
        const V slack = batch.x[k] * inverse_totals;
        const V gradient = T(1) - batch.S[k];
        worst = larger(entry_residual(slack, gradient), worst);
    }
    return worst;
}

// How much lower f could be than at x, at most, in every lane.
template <class T>
KLNMF_INLINE void gaps_of_lanes(const NewtonBatch<T>& batch, double* gaps) {
    using V = typename Lanes<T>::Vector;
    using Wide = typename Lanes<T>::Wide;
    constexpr int lanes = Lanes<T>::count;
    Wide masses{};
    V steepest{};
    for (int k = 0; k < batch.rank; ++k) {
        const V S = batch.S[k];
        masses += __builtin_convertvector(batch.x[k], Wide);
        steepest = larger(S, steepest);
    }
    for (int l = 0; l < lanes; ++l)
        gaps[l] = gap_of_sums(masses[l], batch.totals_of_lanes[l], steepest[l]);
}

// What the model says of the step to its minimum.
template <class T>
struct ModelStep {
    typename Lanes<T>::Vector curvature; // d^T M d
    typename Lanes<T>::Mask hard;        // lanes whose sums left the range of T
};

// x moves to the minimum of the model in the lanes of `moving`, by coordinate descent: until its
// moves are at most `last_move` of the first ones.
template <class T>
KLNMF_INLINE ModelStep<T> minimise_model(typename Lanes<T>::Mask moving, double last_move,
                                         NewtonBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    using Mask = typename Lanes<T>::Mask;
    constexpr int lanes = Lanes<T>::count;
    const int n_slots = batch.n_slots;
    T* const z = batch.target.data();         // slot x lane
    T* const q = batch.slope_of_model.data(); // the model's gradient at z
    T* const gram = batch.gram.data();
    Mask hard{};
    for (int slot = 0; slot < n_slots; ++slot) {
        T* const entry = gram + slot * (n_slots + 1) * lanes;
        const V diagonal = load(entry);
        hard |= ~(diagonal < Limits<T>::max);
        batch.inverse_diagonal.set(slot, T(1) / diagonal);
    }
    Mask searching = moving & ~hard;
    V first_move{}, curvature{};
    for (int sweep = 0; sweep < most_model_sweeps && any_lane(searching); ++sweep) {
        V largest_move{};
        for (int slot = 0; slot < n_slots; ++slot) {
            const V x = load(z + slot * lanes), g = load(q + slot * lanes);
            const V newton = x - g * batch.inverse_diagonal[slot];
            const Mask moves = searching & (batch.may_move[slot] > 0) & (newton < Limits<T>::max);
            const V moved = moves ? (newton > smallest_cover<T>() ? newton : V{}) : x;
            const V delta = moved - x;
            if (!any_lane(delta != 0))
                continue;
            const V size = delta < 0 ? -delta : delta;
            largest_move = larger(size, largest_move);
            store(z + slot * lanes, moved);
            const T* const row = gram + slot * n_slots * lanes;
            for (int other = 0; other < n_slots; ++other)
                store(q + other * lanes,
                      load(q + other * lanes) + delta * load(row + other * lanes));
        }
        first_move = sweep == 0 ? largest_move : first_move;
        searching &= largest_move > first_move * static_cast<T>(last_move);
    }
    const Mask taken = moving & ~hard;
    if (batch.everything) {
        for (int k = 0; k < batch.rank; ++k) {
            const V x = batch.x[k], S = batch.S[k];
            const Mask moves = taken & (batch.may_move[k] > 0);
            const V moved = moves ? load(z + k * lanes) : x;
            curvature += (moved - x) * (load(q + k * lanes) - (T(1) - S));
            batch.x.set(k, moved);
        }
        return {curvature, hard};
    }
    for (int slot = 0; slot < n_slots; ++slot)
        for (int l = 0; l < lanes; ++l)
            if (batch.may_move.at(slot, l) > 0 && taken[l]) {
                const std::int32_t k = batch.components.data()[slot * lanes + l];
                T* const x = batch.x.data() + k * lanes + l;
                const T g = T(1) - batch.S.at(k, l);
                curvature[l] += (z[slot * lanes + l] - *x) * (q[slot * lanes + l] - g);
                *x = z[slot * lanes + l];
            }
    return {curvature, hard};
}

// Lanes in which f at the end of the way is no higher than at its start. Along the way, phi(t) =
// f(x_before + t d), phi' is the sum of a concave part P (nonzeros whose y grows) and a convex one
// N (those whose y falls). With y <= 2 y_before, P(1) - P(0) >= P'(0) / 2, and then
//     phi(1) - phi(0) <= (phi''(0) / 2 + phi'(1) + phi'(0)) / 2,
// so that it is enough that  phi'(1) + phi''(0) / 2 <= -phi'(0).  Without that, phi'(1) <= 0 is.
template <class T>
KLNMF_INLINE typename Lanes<T>::Mask surely_descends(const LaneSums<T>& slopes,
                                                     typename Lanes<T>::Vector curvature,
                                                     const NewtonBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    using Mask = typename Lanes<T>::Mask;
    const Mask falls = slopes.after <= slope_rounding<T>() * load(batch.totals_of_lanes);
    const Mask balanced = slopes.after + curvature * T(0.5) <= slopes.before;
    if (!any_lane(balanced & ~falls))
        return falls;
    Mask doubled{};
    for (std::int64_t i = 0; i < batch.length; ++i) {
        const V y = batch.y[i], before = batch.y_before[i];
        doubled |= y > before + before;
    }
    return falls | (balanced & ~doubled);
}

// How far to go along a way that leads too far, as a share of it. Only y is looked at: y(t) =
// y_before + t (y - y_before).
template <class T>
KLNMF_INLINE typename Lanes<T>::Vector share_of_way(const LaneSums<T>& slopes,
                                                    typename Lanes<T>::Mask uncovered,
                                                    const NewtonBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    using Mask = typename Lanes<T>::Mask;
    WaySearch<T, V, Mask> search(-slopes.before, slopes.after, ~uncovered);
    V linear{}; // the part of phi' that does not change
    for (int k = 0; k < batch.rank; ++k)
        linear += batch.x[k] - batch.x_before[k];
    for (int attempt = 0; attempt < search.tries; ++attempt) {
        const V t = search.next();
        V slope = linear;
        Mask lost{};
        for (std::int64_t i = 0; i < batch.length; ++i) {
            const V before = batch.y_before[i];
            const V moved = batch.y[i] - before, y = before + t * moved;
            lost |= y <= 0;
            slope -= batch.v[i] * moved / y;
        }
        search.narrow(t, slope, ~lost);
    }
    return search.share();
}

// Newton steps until every lane has arrived. On entry y and S belong to x; on return x is the new
// one. `first_residuals` (out) are those met before the first step. Returns the lanes that the rule
// for one row has to take over.
template <class T>
KLNMF_INLINE typename Lanes<T>::Mask newton_steps(const NewtonSettings& settings,
                                                  typename Lanes<T>::Vector& first_residuals,
                                                  NewtonBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    using Mask = typename Lanes<T>::Mask;
    const T tolerance = static_cast<T>(settings.tolerance);
    Mask moving = load(batch.totals_of_lanes) > 0, hard{}, failed_before{};
    for (int round = 0; round < settings.rounds; ++round) {
        const V worst = residuals(batch);
        if (round == 0)
            first_residuals = worst;
        // A cold start leaves small entries where zeros belong: one step at least removes them.
        if (round > 0 || !settings.cold)
            moving &= worst > tolerance;
        if (!any_lane(moving))
            break;
        choose_slots(batch);
        second_derivatives(batch);
        remember(batch);
        remember_products(batch);
        const double last_move = round == 0 ? last_move_of_first_model : last_move_of_model;
        const ModelStep<T> step = minimise_model(moving, last_move, batch);
        hard |= moving & step.hard;
        moving &= ~hard;
        Mask uncovered;
        pass_over(batch, uncovered);
        LaneSums<T> slopes = slopes_of_way(batch);
        Mask failed = moving & (uncovered | ~surely_descends(slopes, step.curvature, batch));
        if (!any_lane(failed))
            continue;
        const V share = share_of_way(slopes, uncovered, batch);
        for (int k = 0; k < batch.rank; ++k) {
            const V before = batch.x_before[k];
            const V x = batch.x[k];
            batch.x.set(k, failed ? before + share * (x - before) : x);
        }
        pass_over(batch, uncovered);
        slopes = slopes_of_way(batch);
        failed &= uncovered | ~surely_descends(slopes, step.curvature * share * share, batch);
        if (!any_lane(failed))
            continue;
        step_plainly(failed, batch);
        pass_over(batch, uncovered);
        hard |= moving & uncovered;
        hard |= failed & failed_before; // twice: not the method for this row
        failed_before |= failed;
        moving &= ~hard;
    }
    return hard;
}

} // namespace klnmf
