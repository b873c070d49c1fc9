// S_k = sum_i v_i A_ik / y_i, and the multiplicative steps that need no more than that.

// Adds a task's S to shared memory; whether a nonzero is not covered, which then has no part in S.
__device__ __forceinline__ bool sums_pass(const Steps& steps, const float* __restrict__ A,
                                          const float* xs, float* Ss) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    bool uncovered = false;
    float S[NB][NT];
#pragma unroll
    for (int b = 0; b < NB; ++b)
#pragma unroll
        for (int n = 0; n < NT; ++n)
            S[b][n] = 0;
    const volatile float* x = xs + g; // from shared memory at every step: registers are few
    Four now = steps.at(0, t), next = steps.at(1, t);
    float a[4][NT];
    if constexpr (NB == 1)
        load_rows(A, now.id, g, a);
#pragma unroll 1
    for (int s = 0; s < steps.count; ++s) {
        float ahead[4][NT], y[4] = {0, 0, 0, 0};
        if constexpr (NB == 1)
            load_rows(A, next.id, g, ahead);
        const Four four = now;
        now = next;
        next = steps.at(s + 2, t);
#pragma unroll
        for (int b = 0; b < NB; ++b) {
            if constexpr (NB > 1)
                load_rows(A + b * LD, four.id, g, a);
#pragma unroll
            for (int n = 0; n < NT; ++n)
#pragma unroll
                for (int q = 0; q < 4; ++q)
                    y[q] += a[q][n] * x[b * LD + 8 * n];
        }
        const float product = fold_four(y, lane), v = own_of(four.v, lane);
        const bool covered = product > fmaxf(SMALLEST_COVER, v * SMALLEST_SHARE);
        uncovered |= v > 0 && !covered;
        const float ratio = covered ? __fdividef(v, product) : 0.f;
        float u[4];
#pragma unroll
        for (int q = 0; q < 4; ++q)
            u[q] = __shfl_sync(ALL, ratio, lane_of(q, t));
#pragma unroll
        for (int b = 0; b < NB; ++b) {
            if constexpr (NB > 1)
                load_rows(A + b * LD, four.id, g, a); // in the first cache by now
#pragma unroll
            for (int n = 0; n < NT; ++n)
#pragma unroll
                for (int q = 0; q < 4; ++q)
                    S[b][n] += u[q] * a[q][n];
        }
        if constexpr (NB == 1) {
#pragma unroll
            for (int q = 0; q < 4; ++q)
#pragma unroll
                for (int n = 0; n < NT; ++n)
                    a[q][n] = ahead[q][n];
        }
    }
#pragma unroll
    for (int b = 0; b < NB; ++b)
        store_sums(S[b], lane, Ss + b * LD);
    __syncwarp();
    return __any_sync(ALL, uncovered);
}

// One of the passes of a half-step.
struct Pass {
    float power;    // x (S / c)^power, scaled to the row's total; 1: the plain step
    int passed;     // passes before it in this half-step
    int tested;     // whether a relaxed step must have descended
    int only_sums;  // leave x alone, keep S
    int measured;   // write the residual and the gap
    float *before, *sums_before; // x and S at the last pass
    unsigned char* state;
    double *kkt, *gaps;
};
#define PASS_ARGUMENTS                                                                             \
    float power, int passed, int tested, int only_sums, int measured, float *before,               \
        float *sums_before, unsigned char *state, double *kkt, double *gaps
#define PASS                                                                                       \
    Pass { power, passed, tested, only_sums, measured, before, sums_before, state, kkt, gaps }

__device__ __forceinline__ float raised(float ratio, float power) {
    return power == 3.f ? ratio * ratio * ratio
                        : (power == 2.f ? ratio * ratio : ratio * sqrtf(ratio));
}

// x_k <- x_k S_k / c_k, or with L2 the positive root z of l2 z^2 + c z = x S. That in double: c^2
// may be beyond a float.
__device__ __forceinline__ float plain(float x, float S, float c, double l2) {
    if (l2 == 0)
        return x * (S / c);
    const double product = (double)x * S, wide = c;
    return product > 0 ? (float)(2 * product / (wide + sqrt(wide * wide + 4 * l2 * product))) : 0.f;
}

// What a row does with S at x: the test of the last relaxed step, and the next step.
__device__ __forceinline__ void multiply(const RowTerms& row, const Pass& pass, int number,
                                         unsigned char state, bool uncovered, const float* xs,
                                         const float* Ss, const float* cs, float* X) {
    const int lane = threadIdx.x & 31;
    const size_t at = (size_t)number * STRIDE;
    const bool may_relax = row.is_plain() && !(state & DROPPED);
    bool failed = false;
    if (pass.passed > 0 && may_relax) {
        failed = uncovered;
        if (!failed && pass.tested) {
            // f is convex: it has descended if its slope here, along the way from there, is <= 0.
            double slope = 0;
            for (int p = lane; p < STRIDE; p += 32)
                slope += (double)(cs[p] - Ss[p]) * (double)(xs[p] - pass.before[at + component(p)]);
            failed = warp_sum(slope) + 8 * 1.1920929e-7 * row.total > 0;
        }
    }
    const bool relaxes = pass.power != 1.f && may_relax && !failed;
    double masses = 0;
    for (int p = lane; relaxes && p < STRIDE; p += 32)
        if (cs[p] > 0)
            masses += (double)(cs[p] * xs[p] * raised(Ss[p] / cs[p], pass.power));
    const float scale = relaxes ? (float)(row.total / warp_sum(masses)) : 1.f;
    for (int p = lane; p < STRIDE; p += 32) {
        const int k = component(p);
        const float c = cs[p];
        if (c < 0)
            continue;
        const float x = failed ? pass.before[at + k] : xs[p];
        const float S = failed ? pass.sums_before[at + k] : Ss[p];
        float moved = 0.f;
        if (c > 0)
            moved = relaxes && scale < 3e38f ? scale * x * raised(S / c, pass.power)
                                             : plain(x, S, c, row.l2);
        if (relaxes)
            pass.before[at + k] = x, pass.sums_before[at + k] = S;
        X[k] = moved > SMALLEST_COVER ? moved : 0.f;
    }
    const bool ends = pass.tested && (failed || !may_relax);
    __syncwarp();
    if (lane == 0)
        pass.state[number] = ends ? state | DONE : state;
}

// A row with a nonzero that is not covered starts evenly and waits for the next launch.
__device__ __forceinline__ void restart(const RowTerms& row, int number, float* xs, float* X,
                                        unsigned char* state, double* kkt, double* gaps) {
    start_evenly(row, xs);
    store_x(xs, X);
    if ((threadIdx.x & 31) == 0) {
        state[number] |= DROPPED | WAITS;
        kkt[number] = gaps[number] = INFINITE;
    }
}

// A row whose S is known: measure, step.
__device__ __forceinline__ void first_order_row(const Terms& terms, const Pass& pass, int number,
                                                bool uncovered, float* xs, const float* Ss,
                                                float* cs, float* X) {
    const int lane = threadIdx.x & 31;
    const RowTerms row(terms, number);
    const unsigned char state = pass.state[number];
    if (uncovered && pass.passed == 0 && !(state & DROPPED))
        return restart(row, number, xs, X, pass.state, pass.kkt, pass.gaps);
    load_slopes(row, cs);
    if (pass.measured && !(state & DROPPED)) {
        const Measured found = measure(row, xs, Ss, cs);
        if (lane == 0)
            pass.kkt[number] = found.kkt, pass.gaps[number] = found.gap;
    }
    if (pass.only_sums) {
        for (int p = lane; p < STRIDE; p += 32)
            pass.sums_before[(size_t)number * STRIDE + component(p)] = Ss[p];
        __syncwarp();
        if (lane == 0)
            pass.state[number] = state & ~WAITS;
        return;
    }
    multiply(row, pass, number, state & ~WAITS, uncovered, xs, Ss, cs, X);
}

extern __shared__ float shared[];

constexpr int SUMS_PART = STRIDE + 8; // floats of a piece: S, and whether a nonzero is not covered

extern "C" __global__ void __launch_bounds__(32 * WPB, NB > 1 ? 8 : 16 / WPB)
    first_order(TASK_ARGUMENTS, const float* A, float* X, TERM_ARGUMENTS, PASS_ARGUMENTS,
                float* parts) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, at = blockIdx.x * WPB + warp;
    if (at >= t_count)
        return;
    const Tasks tasks = TASKS;
    const int task = t_list ? t_list[at] : at, number = t_row[task], slot = t_slot[task];
    if (state[number] & DONE)
        return;
    float *xs = shared + warp * 3 * STRIDE, *Ss = xs + STRIDE;
    float* const mine = X + (size_t)number * STRIDE;
    load_x(mine, xs);
    const bool uncovered = sums_pass(Steps(tasks, task), A, xs, Ss);
    if (slot < 0)
        return first_order_row(TERMS, PASS, number, uncovered, xs, Ss, Ss + STRIDE, mine);
    float* const part = parts + (size_t)slot * SUMS_PART;
    for (int p = lane; p < STRIDE; p += 32)
        part[p] = Ss[p];
    if (lane == 0)
        part[STRIDE] = uncovered;
}

// Rows in pieces: their sums in the order of the pieces, in double.
extern "C" __global__ void __launch_bounds__(128)
    first_order_long(const int* rows, const int* first, float* X, TERM_ARGUMENTS, PASS_ARGUMENTS,
                     const float* parts) {
    __shared__ float xs[STRIDE], Ss[STRIDE], cs[STRIDE];
    __shared__ int uncovered;
    const int number = rows[blockIdx.x], from = first[blockIdx.x], to = first[blockIdx.x + 1];
    if (state[number] & DONE)
        return;
    for (int p = threadIdx.x; p <= STRIDE; p += blockDim.x) {
        double sum = 0;
#pragma unroll 8
        for (int i = from; i < to; ++i)
            sum += parts[(size_t)i * SUMS_PART + p];
        if (p < STRIDE)
            Ss[p] = (float)sum;
        else
            uncovered = sum > 0;
    }
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    float* const mine = X + (size_t)number * STRIDE;
    load_x(mine, xs);
    first_order_row(TERMS, PASS, number, uncovered, xs, Ss, cs, mine);
}
