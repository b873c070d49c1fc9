// S and M = A^T diag(v / y^2) A of a task in one pass; M on the tensor units, from bfloat16.

__device__ __forceinline__ unsigned pack(float low, float high) { // to bfloat16, ties to even
#if __CUDA_ARCH__ >= 800
    unsigned packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
#else
    const unsigned l = __float_as_uint(low), h = __float_as_uint(high);
    return ((l + 0x7fffu + ((l >> 16) & 1)) >> 16) | ((h + 0x7fffu + ((h >> 16) & 1)) & 0xffff0000u);
#endif
}

// sum += A B for a 16 x 16 and a 16 x 8 matrix of bfloat16.
__device__ __forceinline__ void multiply_add(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2,
                                             unsigned a3, unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else // the same by hand, slowly, for older devices
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const auto dot = [](unsigned a, unsigned b) {
        return __uint_as_float(a << 16) * __uint_as_float(b << 16) +
               __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
    };
    for (int i = 0; i < 4; ++i) {
        const int row = 4 * g + i, left = 8 * t + i, right = left + 4;
        const unsigned r0 = __shfl_sync(ALL, a0, row), r1 = __shfl_sync(ALL, a1, row);
        const unsigned r2 = __shfl_sync(ALL, a2, row), r3 = __shfl_sync(ALL, a3, row);
        const unsigned l0 = __shfl_sync(ALL, b0, left), l1 = __shfl_sync(ALL, b1, left);
        const unsigned h0 = __shfl_sync(ALL, b0, right), h1 = __shfl_sync(ALL, b1, right);
        sum[0] += dot(r0, l0) + dot(r2, l1);
        sum[1] += dot(r0, h0) + dot(r2, h1);
        sum[2] += dot(r1, l0) + dot(r3, l1);
        sum[3] += dot(r1, h0) + dot(r3, h1);
    }
#endif
}

// M's upper tiles of 16 x 8, as multiply_add holds them: tile i is of rows 16 m, columns 8 n.
using Tiles = float[TILES][4];

__device__ __forceinline__ void add_products(const float (&a)[4][NT], Tiles& M) {
    unsigned low[NT + 1], high[NT + 1];
#pragma unroll
    for (int n = 0; n < NT; ++n)
        low[n] = pack(a[0][n], a[1][n]), high[n] = pack(a[2][n], a[3][n]);
    low[NT] = high[NT] = 0;
    int i = 0;
#pragma unroll
    for (int m = 0; m < NM; ++m)
#pragma unroll
        for (int n = 2 * m; n < NT; ++n, ++i)
            multiply_add(M[i], low[2 * m], low[2 * m + 1], high[2 * m], high[2 * m + 1], low[n],
                         high[n]);
}

// With one block: S (the lanes' parts) and M. With more, M of the components in `chosen` alone
// (places, or -1); S is known then. Whether a nonzero is not covered.
__device__ __forceinline__ bool matrix_pass(const Steps& steps, const float* __restrict__ A,
                                            const float* xs, const int* chosen, float (&S)[NT],
                                            Tiles& M) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    bool uncovered = false;
#pragma unroll
    for (int n = 0; n < NT; ++n)
        S[n] = 0;
#pragma unroll
    for (int i = 0; i < TILES; ++i)
        M[i][0] = M[i][1] = M[i][2] = M[i][3] = 0;
    const volatile float* x = xs + g;
    Four now = steps.at(0, t), next = steps.at(1, t);
    float a[4][NT];
    if constexpr (NB == 1)
        load_rows(A, now.id, g, a);
#pragma unroll 1
    for (int s = 0; s < steps.count; ++s) {
        float ahead[4][NT], y[4] = {0, 0, 0, 0};
        if constexpr (NB == 1) {
            load_rows(A, next.id, g, ahead);
        }
        const float4 v4 = now.v;
        const int4 ids = now.id;
        now = next;
        next = steps.at(s + 2, t);
#pragma unroll 1
        for (int b = 0; b < NB; ++b) {
            if constexpr (NB > 1)
                load_rows(A + b * LD, ids, g, a);
#pragma unroll
            for (int n = 0; n < NT; ++n) {
                const float xn = x[b * LD + 8 * n];
#pragma unroll
                for (int q = 0; q < 4; ++q)
                    y[q] += a[q][n] * xn;
            }
        }
        const float product = fold_four(y, lane), v = own_of(v4, lane);
        const bool covered = product > fmaxf(SMALLEST_COVER, v * SMALLEST_SHARE);
        uncovered |= v > 0 && !covered;
        const float inverse = covered ? __fdividef(1.f, product) : 0.f;
        const float ratio = v * inverse, root = v > 0 ? ratio * rsqrtf(v) : 0.f;
        if constexpr (NB > 1) {
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                const int id = q == 0 ? ids.x : (q == 1 ? ids.y : (q == 2 ? ids.z : ids.w));
                const float* from = A + (OFFSET)id * (OFFSET)STRIDE;
#pragma unroll
                for (int n = 0; n < NT; ++n)
                    a[q][n] = chosen[8 * n + g] >= 0 ? __ldg(from + chosen[8 * n + g]) : 0.f;
            }
        }
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            const float w = __shfl_sync(ALL, root, lane_of(q, t));
            const float u = NB == 1 ? __shfl_sync(ALL, ratio, lane_of(q, t)) : 0.f;
#pragma unroll
            for (int n = 0; n < NT; ++n) {
                if constexpr (NB == 1)
                    S[n] += u * a[q][n];
                a[q][n] *= w;
            }
        }
        add_products(a, M);
        if constexpr (NB == 1) {
#pragma unroll
            for (int q = 0; q < 4; ++q)
#pragma unroll
                for (int n = 0; n < NT; ++n)
                    a[q][n] = ahead[q][n];
        }
    }
    return __any_sync(ALL, uncovered);
}

// ---- a half-step ---------------------------------------------------------------------------------

struct Step {
    int sweeps;       // over the model, at most
    float last_move;  // of the first sweep's largest move: they end there
    double tolerance; // rows with a smaller residual, or gap in units of their total, are done
    int least;        // whether a step is made whatever they are
    int measured;
    const float* sums; // with several blocks: S of all rows
    unsigned char* state;
    double *kkt, *gaps;
};
#define STEP_ARGUMENTS                                                                             \
    int sweeps, float last_move, double tolerance, int least, int measured, const float *sums,     \
        unsigned char *state, double *kkt, double *gaps
#define STEP                                                                                       \
    Step { sweeps, last_move, tolerance, least, measured, sums, state, kkt, gaps }

// At most LD components that may move, as places in the row, -1 where there are no more: all that
// are in use or should be, or those with the largest share of the row times their slope.
__device__ __forceinline__ void choose(const RowTerms& row, const float* xs, const float* Ss,
                                       const float* cs, float* scores, int* chosen) {
    const int lane = threadIdx.x & 31;
    int count = 0;
    for (int p = lane; p < (STRIDE + 31) / 32 * 32; p += 32) {
        const bool is_one = p < STRIDE;
        const int k = is_one ? component(p) : 0;
        const float c = is_one ? cs[p] : 0.f, x = is_one ? xs[p] : 0.f;
        const float g = c + (float)row.l2 * x - (is_one ? Ss[p] : 0.f);
        const bool may_move = c > 0 && (x > 0 || g < 0);
        const float mass = fmaxf(x * c / (float)row.total, 1e-3f);
        if (is_one)
            scores[p] = may_move ? fmaxf(mass * fabsf(g) / c, 1e-37f) : 0.f;
        const unsigned found = __ballot_sync(ALL, may_move);
        const int at = count + __popc(found & ((1u << lane) - 1));
        if (may_move && at < LD)
            chosen[at] = k;
        count += __popc(found);
    }
    __syncwarp();
    for (int i = count + lane; i < LD; i += 32)
        chosen[i] = -1;
    for (int i = 0; count > LD && i < LD; ++i) {
        float best = 0;
        int which = STRIDE;
        for (int p = lane; p < STRIDE; p += 32)
            if (scores[p] > best)
                best = scores[p], which = p;
        const float most = warp_max(best);
        which = (int)-warp_max(best == most ? -(float)which : -1e9f);
        if (lane == 0)
            chosen[i] = component(which), scores[which] = 0;
        __syncwarp();
    }
    __syncwarp();
}
