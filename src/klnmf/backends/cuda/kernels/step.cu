// The step of a row, from S and M at x: the minimum of the model
//
//     g.d + d^T M d / 2,   g = c + l2 x - S,   over d_k >= -0.6 x_k  (small entries: d_k >= -x_k)
//
// by coordinate descent, then as much of the way as surely descends. Let s bound the share by which
// any y_i falls. Then f(x + d) <= f(x) + g.d + kappa(s) / 2 d^T M d, because for u >= -s
//     -log(1 + u) <= -u + kappa(s) u^2 / 2,   kappa(s) = 2 (-log(1 - s) - s) / s^2.
// An ordinary entry that falls by the share s1 takes no more than s1 of any y. A small one takes
// at most -d_k max_i A_ik / y_i, and A_ik / y_i <= (1 + 2^-8) sqrt(M_kk / v_i): M is of numbers
// rounded to bfloat16. What that does to d^T M d is in docs/internals/cuda.md, with all proofs.

constexpr float ROUNDED = 1.00392f;     // 1 + 2^-8, and the rounding of the sums
constexpr float LOST = 0.00391f;        // 2^-8
constexpr float SMALL = 0.05f;          // x sqrt(M) up to which an entry may go to 0 at once
constexpr float KEPT = 0.4f;            // what is left of an ordinary one, at least
constexpr int COMPACT = LD <= 32 ? LD : 32;
// Floats for M: compacted in float, or all in half precision with a unit diagonal.
constexpr int MODEL = LD <= 32 ? LD * LD : (LD * LD / 2 > 1024 ? LD * LD / 2 : 1024);
// Floats of shared memory of a step, see Work.
constexpr int STEP_SHARED = 3 * STRIDE + MODEL + 3 * LD + (NB > 1 ? 4 * LD : 0);

__device__ __forceinline__ float kappa(float s) {
    return 1.0001f * (s < 0.02f ? 1.f + s * (0.6666667f + 0.5f * s)
                                : 2.f * (-log1pf(-s) - s) / (s * s));
}
__device__ __forceinline__ unsigned short to_half(float x) {
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
__device__ __forceinline__ float from(unsigned short h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}
__device__ __forceinline__ float from(float x) { return x; }

// Shared memory of a warp: x, S and c of all components, M, and of the LD components of a step their
// diagonal, the list of the active ones, the place in that list, and with several blocks the same
// as of all and the place in the factor row.
struct Work {
    float *xs, *Ss, *cs, *M, *diagonal, *x, *S, *c;
    int *list, *rank, *places;
    __device__ explicit Work(float* from) {
        xs = from, Ss = xs + STRIDE, cs = Ss + STRIDE, M = cs + STRIDE, diagonal = M + MODEL;
        list = reinterpret_cast<int*>(diagonal + LD), rank = list + LD;
        if constexpr (NB == 1) {
            x = xs, S = Ss, c = cs;
        } else {
            x = diagonal + 3 * LD, S = x + LD, c = S + LD;
            places = reinterpret_cast<int*>(c + LD);
        }
    }
    __device__ __forceinline__ int where(int p) const {
        if constexpr (NB == 1)
            return place(p);
        else
            return places[p];
    }
};

// Coordinate descent on the model, and the share of its way that surely descends. U = 1: the n
// active components, compacted, E = float. U = 2: all LD, unit diagonal, E = half. Whether x moves.
template <int U, class E>
__device__ __forceinline__ bool descend(const RowTerms& row, const Work& work, const E* M, int n,
                                        const Step& step, float* X) {
    constexpr int W = U == 2 ? LD : COMPACT; // numbers from one row of M to the next
    const int lane = threadIdx.x & 31, end = U == 2 ? LD : (n + 3) & ~3;
    int at[U];
    float x[U], g[U], q[U], z[U], least[U], inverse[U], scale[U], mass[U], bound[U], root[U];
    bool is_small[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const int l = lane + 32 * u;
        if constexpr (U == 1)
            at[u] = l < n ? work.list[l] : -1;
        else
            at[u] = l < LD && work.rank[l] >= 0 ? l : -1;
        x[u] = g[u] = q[u] = z[u] = least[u] = inverse[u] = mass[u] = bound[u] = root[u] = 0;
        scale[u] = 1, is_small[u] = false;
        if (at[u] < 0)
            continue;
        const float c = work.c[at[u]], l2 = (float)row.l2;
        const float old = work.x[at[u]], own = work.diagonal[at[u]];
        if constexpr (U == 1)
            inverse[u] = 1.f / (own + l2);
        else
            inverse[u] = 1.f, scale[u] = rsqrtf(own + l2);
        root[u] = sqrtf(own) * scale[u];
        bound[u] = ROUNDED * root[u] / row.least_root;
        x[u] = z[u] = old / scale[u];
        g[u] = q[u] = (c + l2 * old - work.S[at[u]]) * scale[u];
        is_small[u] = x[u] * bound[u] <= SMALL;
        least[u] = is_small[u] ? 0.f : KEPT * x[u];
        mass[u] = c * scale[u];
    }
    float first = 0;
    for (int sweep = 0; sweep < step.sweeps; ++sweep) {
        float start[U];
#pragma unroll
        for (int u = 0; u < U; ++u)
            start[u] = z[u];
        const auto visit = [&](int from_j, int to_j, int half) {
            const E* of_j = M + from_j * W + lane;
            for (int j = from_j; j < to_j; j += 4, of_j += 4 * W) {
                float e[4][U];
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int u = 0; u < U; ++u)
                        e[i][u] = lane + 32 * u < W ? from(of_j[i * W + 32 * u]) : 0.f;
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float here = half ? z[U - 1] : z[0], slope = half ? q[U - 1] : q[0];
                    const float moved = fmaxf(here - slope * (half ? inverse[U - 1] : inverse[0]),
                                              half ? least[U - 1] : least[0]);
                    const float d = __shfl_sync(ALL, moved - here, (j + i) & 31);
                    if (lane == ((j + i) & 31)) {
                        if (half)
                            z[U - 1] = moved;
                        else
                            z[0] = moved;
                    }
#pragma unroll
                    for (int u = 0; u < U; ++u)
                        q[u] += e[i][u] * d;
                }
            }
        };
        if constexpr (U == 1) {
            visit(0, end, 0);
        } else {
            visit(0, 32, 0);
            visit(32, end, 1);
        }
        float move = 0;
#pragma unroll
        for (int u = 0; u < U; ++u)
            move = fmaxf(move, fabsf(z[u] - start[u]) * mass[u]);
        move = largest(move);
        first = sweep == 0 ? move : first;
        if (!(move > step.last_move * first))
            break;
    }
    float linear = 0, square = 0, share = 0, small_share = 0, size = 0, way = 0;
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (at[u] < 0)
            continue;
        const float d = z[u] - x[u];
        linear += g[u] * d, square += d * (q[u] - g[u]);
        size += fabsf(d) * root[u], way += fabsf(d);
        if (d < 0 && is_small[u])
            small_share -= d * bound[u];
        else if (d < 0)
            share = fmaxf(share, -d / x[u]);
    }
    linear = warp_sum(linear), square = warp_sum(square), size = warp_sum(size);
    share = largest(share) + warp_sum(small_share);
    if constexpr (U == 2) { // entries of at most 1 rounded to half precision
        way = warp_sum(way);
        square += 5e-4f * way * way;
    }
    const float norm = sqrtf(fmaxf(square, 0.f)) + LOST * size;
    square = norm * norm * 1.00001f;
    float length = 1;
    if (!(share < 0.95f && linear + 0.5f * kappa(share) * square <= 0)) {
        constexpr float most = 0.6f; // y keeps the rest
        length = share > most ? most / share : 1.f;
        length = fminf(length, -linear / (kappa(fminf(share, most)) * square));
        length = length > 0 ? length : 0.f;
    }
    bool moves = false;
#pragma unroll
    for (int u = 0; u < U; ++u)
        if (at[u] >= 0 && z[u] != x[u] && length > 0) {
            const float moved = (length == 1.f ? z[u] : x[u] + length * (z[u] - x[u])) * scale[u];
            moves |= moved != work.x[at[u]];
            X[work.where(at[u])] = moved > SMALLEST_COVER ? moved : 0.f;
        }
    return __any_sync(ALL, moves);
}

// Which of the LD components are active, and M of these in shared memory; returns how many.
__device__ __forceinline__ int store_model(const RowTerms& row, const Work& work, const Tiles& M) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    int i = 0;
#pragma unroll
    for (int m = 0; m < NM; ++m)
#pragma unroll
        for (int n = 2 * m; n < NT; ++n, ++i) {
            if (n == 2 * m && (g >> 1) == t)
                work.diagonal[16 * m + g] = (g & 1) ? M[i][1] : M[i][0];
            if (n == 2 * m + 1 && (g >> 1) == t)
                work.diagonal[16 * m + 8 + g] = (g & 1) ? M[i][3] : M[i][2];
        }
    __syncwarp();
    int n_active = 0;
#pragma unroll
    for (int u = 0; u < (LD + 31) / 32; ++u) {
        const int p = lane + 32 * u;
        bool active = false;
        if (p < LD) {
            const float c = work.c[p], own = work.diagonal[p];
            active = c > 0 && own > 1e-37f && own < 1e37f && (work.x[p] > 0 || work.S[p] > c);
        }
        const unsigned found = __ballot_sync(ALL, active);
        const int at = n_active + __popc(found & ((1u << lane) - 1));
        if (active)
            work.list[at] = p;
        if (p < LD)
            work.rank[p] = active ? at : -1;
        n_active += __popc(found);
    }
    __syncwarp();
    const float l2 = (float)row.l2;
    if (LD <= 32 || n_active <= 32) {
        float* const to = work.M;
        const auto put = [&](int a, int b, float v) {
            if (a >= 0 && b >= 0)
                to[a * COMPACT + b] = a == b ? v + l2 : v;
        };
        i = 0;
#pragma unroll
        for (int m = 0; m < NM; ++m) {
            const int ra = work.rank[16 * m + g], rb = 2 * m + 1 < NT ? work.rank[16 * m + 8 + g] : -1;
#pragma unroll
            for (int n = 2 * m; n < NT; ++n, ++i) {
                const int ca = work.rank[8 * n + 2 * t], cb = work.rank[8 * n + 2 * t + 1];
                put(ra, ca, M[i][0]), put(ra, cb, M[i][1]);
                if (n > 2 * m) {
                    put(ca, ra, M[i][0]), put(cb, ra, M[i][1]);
                    put(rb, ca, M[i][2]), put(rb, cb, M[i][3]);
                }
                if (n > 2 * m + 1)
                    put(ca, rb, M[i][2]), put(cb, rb, M[i][3]);
            }
        }
        for (int j = n_active; j < ((n_active + 3) & ~3); ++j)
            if (lane < COMPACT)
                to[j * COMPACT + lane] = 0.f;
        __syncwarp();
    } else if constexpr (LD > 32) {
        unsigned short* const to = reinterpret_cast<unsigned short*>(work.M);
        const auto scale = [&](int p) {
            return work.rank[p] >= 0 ? rsqrtf(work.diagonal[p] + l2) : 0.f;
        };
        const auto put = [&](int a, int b, float v) {
            to[a * LD + b] = to_half(a == b ? (work.rank[a] >= 0 ? 1.f : 0.f) : v);
        };
        i = 0;
#pragma unroll
        for (int m = 0; m < NM; ++m) {
            const int r0 = 16 * m + g, r1 = r0 + 8;
            const float sa = scale(r0), sb = 2 * m + 1 < NT ? scale(r1) : 0.f;
#pragma unroll
            for (int n = 2 * m; n < NT; ++n, ++i) {
                const int ca = 8 * n + 2 * t, cb = ca + 1;
                const float ta = scale(ca), tb = scale(cb);
                put(r0, ca, M[i][0] * sa * ta), put(r0, cb, M[i][1] * sa * tb);
                if (n > 2 * m) {
                    put(ca, r0, M[i][0] * sa * ta), put(cb, r0, M[i][1] * sa * tb);
                    if (2 * m + 1 < NT) {
                        put(r1, ca, M[i][2] * sb * ta), put(r1, cb, M[i][3] * sb * tb);
                    }
                }
                if (n > 2 * m + 1)
                    put(ca, r1, M[i][2] * sb * ta), put(cb, r1, M[i][3] * sb * tb);
            }
        }
        __syncwarp();
    }
    return n_active;
}

// Decides whether the row is done, and steps.
__device__ __forceinline__ void second_order_row(const RowTerms& row, int number, bool uncovered,
                                                 const Work& work, const Tiles& M, const Step& step,
                                                 float* X) {
    const int lane = threadIdx.x & 31;
    const unsigned char state = step.state[number];
    if (uncovered && !(state & DROPPED))
        return restart(row, number, work.xs, X, step.state, step.kkt, step.gaps);
    if constexpr (NB == 1)
        load_slopes(row, work.cs);
    const int n_active = store_model(row, work, M);
    const Measured found = measure(row, work.xs, work.Ss, work.cs);
    const bool is_good = found.kkt <= step.tolerance || found.gap <= step.tolerance * row.total;
    const bool is_done = !(row.total > 0) || (is_good && !step.least);
    __syncwarp();
    if (lane == 0) {
        if (step.measured && !(state & DROPPED))
            step.kkt[number] = found.kkt, step.gaps[number] = found.gap;
        step.state[number] = is_done ? (state & ~WAITS) | DONE : state & ~WAITS;
    }
    for (int p = lane; p < STRIDE; p += 32) // dead, or no nonzero has a part in it
        if (work.xs[p] > 0 && (work.cs[p] == 0 || (work.cs[p] > 0 && work.Ss[p] == 0)))
            X[component(p)] = 0.f;
    if (is_done)
        return;
    bool moves;
    if (LD <= 32 || n_active <= 32)
        moves = descend<1, float>(row, work, work.M, n_active, step, X);
    else if constexpr (LD > 32)
        moves = descend<2, unsigned short>(row, work, reinterpret_cast<unsigned short*>(work.M), LD,
                                           step, X);
    if (!moves && lane == 0) // rounding lets it go no further
        step.state[number] |= DONE;
}

constexpr int MATRIX_PART = (4 * TILES + NT) * 32 + 8; // floats of a piece: M, S, and the flag

// What is needed before the pass: x, and with several blocks S and the components that move.
__device__ __forceinline__ void prepare(const Terms& terms, int number, const float* X,
                                        const float* sums, const Work& work) {
    const float* const mine = X + (size_t)number * STRIDE;
    load_x(mine, work.xs);
    if constexpr (NB > 1) {
        const RowTerms row(terms, number);
        sums += (size_t)number * STRIDE;
        load_x(sums, work.Ss);
        load_slopes(row, work.cs);
        choose(row, work.xs, work.Ss, work.cs, work.M, work.places);
        for (int p = threadIdx.x & 31; p < LD; p += 32) {
            const int k = work.places[p];
            work.x[p] = k >= 0 ? mine[k] : 0.f, work.S[p] = k >= 0 ? sums[k] : 0.f;
            work.c[p] = k >= 0 ? (float)row.slope(k) : 0.f;
        }
        __syncwarp();
    }
}

extern "C" __global__ void __launch_bounds__(32 * WPB, LIVE)
    second_order(TASK_ARGUMENTS, const float* A, float* X, TERM_ARGUMENTS, STEP_ARGUMENTS,
                 float* parts) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, at = blockIdx.x * WPB + warp;
    if (at >= t_count)
        return;
    const Tasks tasks = TASKS;
    const int task = t_list ? t_list[at] : at, number = t_row[task], slot = t_slot[task];
    if (state[number] & (NB == 1 ? DONE : DONE | WAITS))
        return;
    const Work work(shared + warp * STEP_SHARED);
    prepare(TERMS, number, X, sums, work);
    float S[NT];
    Tiles M;
    const bool uncovered = matrix_pass(Steps(tasks, task), A, work.xs, work.places, S, M);
    if (slot >= 0) {
        float* const part = parts + (size_t)slot * MATRIX_PART + lane;
#pragma unroll
        for (int i = 0; i < TILES; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                part[(4 * i + j) * 32] = M[i][j];
#pragma unroll
        for (int n = 0; n < NT; ++n)
            part[(4 * TILES + n) * 32] = S[n];
        if (lane == 0)
            part[(4 * TILES + NT) * 32] = uncovered;
        return;
    }
    if constexpr (NB == 1)
        store_sums(S, lane, work.Ss);
    __syncwarp();
    second_order_row(RowTerms(TERMS, number), number, NB == 1 && uncovered, work, M, STEP,
                     X + (size_t)number * STRIDE);
}

// Rows in pieces: their sums in the order of the pieces, in double.
extern "C" __global__ void __launch_bounds__(256)
    second_order_long(const int* rows, const int* first, float* X, TERM_ARGUMENTS, STEP_ARGUMENTS,
                      const float* parts) {
    float* const raw = shared;
    const int number = rows[blockIdx.x], from = first[blockIdx.x], to = first[blockIdx.x + 1];
    if (state[number] & (NB == 1 ? DONE : DONE | WAITS))
        return;
    for (int p = threadIdx.x; p <= (4 * TILES + NT) * 32; p += blockDim.x) {
        double sum = 0;
#pragma unroll 8
        for (int i = from; i < to; ++i)
            sum += parts[(size_t)i * MATRIX_PART + p];
        raw[p] = (float)sum;
    }
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    const int lane = threadIdx.x;
    const Work work(raw + MATRIX_PART);
    prepare(TERMS, number, X, sums, work);
    Tiles M;
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
            M[i][j] = raw[(4 * i + j) * 32 + lane];
    if constexpr (NB == 1) {
        float S[NT];
#pragma unroll
        for (int n = 0; n < NT; ++n)
            S[n] = raw[(4 * TILES + n) * 32 + lane];
        store_sums(S, lane, work.Ss);
    }
    __syncwarp();
    const bool uncovered = NB == 1 && raw[(4 * TILES + NT) * 32] > 0;
    second_order_row(RowTerms(TERMS, number), number, uncovered, work, M, STEP,
                     X + (size_t)number * STRIDE);
}
