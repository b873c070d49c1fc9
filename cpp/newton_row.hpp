// One step of Newton's method on a row alone, for rows so long that visits of one component after
// the other would read their part of A many times.
//
// The step goes to the minimum over z >= 0 of the model  g.(z - x) + (z - x)^T M (z - x) / 2  with
// M = sum_i v_i a_i a_i^T / y_i^2 + l2: one pass over the nonzeros for M, sweeps over a matrix of
// n x n numbers (n active components), and one pass that says whether f is lower there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "inlined.hpp"
#include "row_gather.hpp"
#include "row_problem.hpp"
#include "vector_lanes.hpp"
#include "way_search.hpp"

namespace klnmf {

// Part of a row, with the columns of the active components: that of active[j] begins at
// columns + slots[j] * size.
template <class T>
struct NewtonChunk {
    std::int64_t start, size; // size: padded
    const T* columns;
};

template <class T>
KLNMF_INLINE NewtonChunk<T> chunk_at(const Row<T>& row, std::int64_t start, int n,
                                     RowScratch<T>& scratch) {
    Row<T> part = row;
    part.indices += start;
    part.length = min_of(newton_chunk, row.length - start);
    part.padded_length = padded(part.length);
    part.available -= start;
    part.kept_products = nullptr; // only short rows have them
    gather_active(part, n, scratch);
    return {start, part.padded_length, scratch.columns};
}

// gram[j * n + k] += sum_i v_i a_ij a_ik / y_i^2 over a chunk, for k <= j.
template <class T>
KLNMF_INLINE void add_second_derivatives(const NewtonChunk<T>& chunk, int n,
                                         const RowScratch<T>& scratch, double* gram) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count, side = 4;
    T* const scaled = scratch.newton_columns; // a_ij sqrt(v_i) / y_i
    T weights[newton_chunk];
    for (std::int64_t i = 0; i < chunk.size; ++i)
        weights[i] = square_root(scratch.v[chunk.start + i]) / scratch.y[chunk.start + i];
    for (int j = 0; j < n; ++j) {
        const T* column = chunk.columns + scratch.slots[j] * chunk.size;
        for (std::int64_t i = 0; i < chunk.size; i += lanes)
            store(scaled + j * newton_chunk + i, load(column + i) * load(weights + i));
    }
    for (int j = 0; j < n; j += side)
        for (int k = 0; k <= j; k += side) {
            const T *left[side], *right[side];
            for (int a = 0; a < side; ++a) {
                left[a] = scaled + min_of(j + a, n - 1) * newton_chunk;
                right[a] = scaled + min_of(k + a, n - 1) * newton_chunk;
            }
            V sums[side][side] = {};
            for (std::int64_t i = 0; i < chunk.size; i += lanes) {
                V b[side];
#pragma GCC unroll 4
                for (int a = 0; a < side; ++a)
                    b[a] = load(right[a] + i);
#pragma GCC unroll 4
                for (int a = 0; a < side; ++a) {
                    const V of_left = load(left[a] + i);
#pragma GCC unroll 4
                    for (int c = 0; c < side; ++c)
                        sums[a][c] += of_left * b[c];
                }
            }
            for (int a = 0; a < side && j + a < n; ++a)
                for (int c = 0; c < side && k + c < n; c += 2) {
                    const auto both = sum_both(sums[a][c], sums[a][c + 1]);
                    gram[(j + a) * n + k + c] += static_cast<double>(both.first);
                    if (k + c + 1 < n)
                        gram[(j + a) * n + k + c + 1] += static_cast<double>(both.second);
                }
        }
}

// z (in: x) becomes the minimum of the model, by coordinate descent; q (in: the gradient) is the
// model's gradient there. Returns false where M is not finite.
KLNMF_INLINE bool minimise_model_of_row(int n, const double* M, const double* c, double* z,
                                        double* q) {
    constexpr int most_sweeps = 16;
    constexpr double last_move = 0.05; // share of the first sweep's largest move
    for (int j = 0; j < n; ++j)
        if (!(M[j * n + j] < Limits<double>::max && M[j * n + j] > 0))
            return false;
    double first_move = 0;
    for (int sweep = 0; sweep < most_sweeps; ++sweep) {
        double largest_move = 0;
        for (int j = 0; j < n; ++j) {
            const double moved = max_of(z[j] - q[j] / M[j * n + j], 0.0), delta = moved - z[j];
            if (delta == 0)
                continue;
            z[j] = moved;
            for (int k = 0; k < n; ++k)
                q[k] += delta * M[j * n + k];
            largest_move = max_of(largest_move, c[j] * absolute(delta));
        }
        first_move = sweep == 0 ? largest_move : first_move;
        if (!(largest_move > last_move * first_move))
            break;
    }
    return true;
}

// What a pass over the nonzeros says of the way from x_before to x, in double.
struct Way {
    double fall;    // sum_i v_i delta_i / y_i at its start
    double rise;    // the same at its end
    double log_sum; // sum_i v_i log y_i at its end
    bool covered;   // every nonzero is, at its end
    bool doubled;   // a y is more than twice what it was
};

// Also stores delta_i in scratch.y_before.
template <class T>
KLNMF_INLINE Way look_along(const Row<T>& row, int n, bool want_value, RowScratch<T>& scratch) {
    using V = typename Lanes<T>::Vector;
    using Wide = typename Lanes<T>::Wide;
    constexpr int lanes = Lanes<T>::count;
    Wide fall{}, rise{};
    double log_sum = 0;
    V least = V{} + T(1), most{};
    double y_new[newton_chunk];
    for (std::int64_t start = 0; start < row.padded_length; start += newton_chunk) {
        const NewtonChunk<T> chunk = chunk_at(row, start, n, scratch);
        for (std::int64_t i = 0; i < chunk.size; i += lanes) {
            Wide before{}, delta{};
            for (int j = 0; j < n; ++j) {
                const int k = scratch.active[j];
                const Wide a = __builtin_convertvector(
                    load(chunk.columns + scratch.slots[j] * chunk.size + i), Wide);
                before += a * static_cast<double>(scratch.x_before[k]);
                delta += a * (static_cast<double>(scratch.x[k]) -
                              static_cast<double>(scratch.x_before[k]));
            }
            const V v = load(scratch.v + start + i);
            const Wide wide_v = __builtin_convertvector(v, Wide);
            // Padding and dropped nonzeros have v = 0; give them y = 1.
            before = wide_v > 0 ? before : Wide{} + 1.0;
            delta = wide_v > 0 ? delta : Wide{};
            const Wide after = before + delta;
            fall += wide_v * delta / before;
            rise += wide_v * delta / after;
            const V y = __builtin_convertvector(after, V),
                    change = __builtin_convertvector(delta, V);
            const V growth = change - __builtin_convertvector(before, V);
            const V cover = y > v * smallest_share<T>() ? y : V{};
            least = v > 0 ? (cover < least ? cover : least) : least;
            most = growth > most ? growth : most;
            store(scratch.y_before + start + i, change);
            for (int l = 0; l < lanes; ++l)
                y_new[i + l] = after[l];
        }
        if (want_value)
            log_sum += weighted_log_sum(scratch.v + start, y_new, chunk.size);
    }
    return {sum_lanes(fall), sum_lanes(rise), log_sum, !any_lane(least <= smallest_cover<T>()),
            any_lane(most > 0)};
}

// How far to go along a way that leads too far, as a share of it. y(t) = y + t delta; `linear` and
// `square` are the parts of the slope, at t, that do not look at the nonzeros: linear + t square.
template <class T>
KLNMF_INLINE double share_of_way(const Row<T>& row, const Way& way, double linear, double square,
                                 const RowScratch<T>& scratch) {
    using V = typename Lanes<T>::Vector;
    using Wide = typename Lanes<T>::Wide;
    constexpr int lanes = Lanes<T>::count;
    WaySearch<double, double, bool> search(linear - way.fall, linear + square - way.rise,
                                           way.covered);
    for (int attempt = 0; attempt < search.tries; ++attempt) {
        const double t = search.next();
        Wide sums{};
        V least = V{} + T(1);
        for (std::int64_t i = 0; i < row.padded_length; i += lanes) {
            const V delta = load(scratch.y_before + i);
            const V y = load(scratch.y + i) + static_cast<T>(t) * delta;
            least = y < least ? y : least;
            sums += __builtin_convertvector(load(scratch.v + i) * delta / y, Wide);
        }
        search.narrow(t, linear + t * square - sum_lanes(sums), !any_lane(least <= 0));
    }
    return search.share();
}

// Moves x by one step, to where f is no higher for certain, and sets `value` to f there if that is
// wanted. On entry y belongs to x, S_before is the gradient, and the active components are listed.
// Returns false, and leaves x alone, where it finds no such step. The proof of the test is in
// docs/maths/iterations.md: with phi(t) = f along the way, it is enough that phi'(1) <= 0, or that
// no y more than doubles and phi'(1) + phi''(0) / 2 <= -phi'(0).
template <class T>
KLNMF_OWN bool newton_step(const Row<T>& row, int n, bool want_value, RowScratch<T>& scratch,
                           double& value) {
    double* const M = scratch.newton_model;
    double *const z = M + n * n, *const q = z + n, *const c = q + n, *const moves = c + n;
    for (int j = 0; j < n * n; ++j)
        M[j] = 0;
    for (int j = 0; j < n; ++j) {
        const int k = scratch.active[j];
        z[j] = scratch.x_before[k] = scratch.x[k];
        c[j] = row.fixed.c[k];
    }
    for (std::int64_t start = 0; start < row.padded_length; start += newton_chunk) {
        const NewtonChunk<T> chunk = chunk_at(row, start, n, scratch);
        add_second_derivatives(chunk, n, scratch, M);
    }
    for (int j = 0; j < n; ++j) {
        for (int k = j + 1; k < n; ++k)
            M[j * n + k] = M[k * n + j];
        M[j * n + j] += row.fixed.l2;
        q[j] = scratch.S_before[scratch.active[j]];
    }
    if (!minimise_model_of_row(n, M, c, z, q))
        return false;
    // Sums of doubles over the row are not better than this.
    const double rounding = 1e-14 * row.total;
    double share = 1;
    for (int attempt = 0; attempt < 2; ++attempt) {
        double linear = 0, square = 0, curvature = 0;
        for (int j = 0; j < n; ++j) {
            const int k = scratch.active[j];
            const double before = scratch.x_before[k];
            const T moved = static_cast<T>(before + share * (z[j] - before));
            scratch.x[k] = moved > smallest_cover<T>() ? moved : T(0);
            moves[j] = static_cast<double>(scratch.x[k]) - before;
            linear += (c[j] + row.fixed.l2 * before) * moves[j];
            square += row.fixed.l2 * moves[j] * moves[j];
        }
        for (int j = 0; j < n; ++j)
            for (int k = 0; k < n; ++k)
                curvature += moves[j] * M[j * n + k] * moves[k];
        const Way way = look_along(row, n, want_value, scratch);
        const double at_start = linear - way.fall, at_end = linear + square - way.rise;
        if (way.covered && (at_end <= rounding ||
                            (!way.doubled && at_end + 0.5 * curvature <= rounding - at_start))) {
            if (want_value)
                value = linear_and_quadratic(row.fixed, scratch.x) - way.log_sum;
            return true;
        }
        if (attempt == 0)
            share = share_of_way(row, way, linear, square, scratch);
    }
    for (int j = 0; j < n; ++j)
        scratch.x[scratch.active[j]] = scratch.x_before[scratch.active[j]];
    return false;
}

} // namespace klnmf
