// What a row problem has beside its nonzeros: slopes, penalties, components that may not move.
//
//     minimise over x >= 0   c.x + l2/2 |x|^2 - sum_i v_i log y_i,    y_i = A_i.x

struct Terms {
    int rank;
    const double* c;         // STRIDE slopes that all rows share
    double l2;
    const int* own;          // by row: which row of own_c is its c, -1: none; null: no row has one
    const double* own_c;
    const double* shares;    // by row: what l1 and l2 are multiplied by; null: 1, and c has l1
    double l1;               // before that
    const Mask* barred;      // by row, components that are 0; null: none
    const Mask* frozen;      // components that do not change, in all rows; null: none
    const double* totals;    // by row, V = sum_i v_i
    const float* least_root; // by row, the root of the smallest v, 1 at most; null: 1
};
#define TERM_ARGUMENTS                                                                             \
    int rank, const double *c, double l2, const int *own, const double *own_c,                     \
        const double *shares, double l1, const Mask *barred, const Mask *frozen,                   \
        const double *totals, const float *least_root
#define TERMS                                                                                      \
    Terms { rank, c, l2, own, own_c, shares, l1, barred, frozen, totals, least_root }

__device__ __forceinline__ bool is_in(const Mask* set, int k) {
    return set && (set[k >> 6] >> (k & 63)) & 1;
}

struct RowTerms {
    const double* c;
    double added, l2, total;
    const Mask *barred, *frozen;
    int rank;
    float least_root;

    __device__ RowTerms(const Terms& terms, int row) {
        const int place = terms.own ? terms.own[row] : -1;
        c = place < 0 ? terms.c : terms.own_c + (size_t)place * STRIDE;
        added = terms.shares ? terms.l1 * terms.shares[2 * (size_t)row] : 0.0;
        l2 = terms.shares ? terms.l2 * terms.shares[2 * (size_t)row + 1] : terms.l2;
        total = terms.totals[row];
        barred = terms.barred ? terms.barred + (size_t)row * MASKS : nullptr;
        frozen = terms.frozen;
        rank = terms.rank;
        least_root = terms.least_root ? terms.least_root[row] : 1.f;
    }
    // A component that is barred looks like a dead one: its slope is 0.
    __device__ __forceinline__ double slope(int k) const {
        return k < rank && !is_in(barred, k) ? c[k] + added : 0.0;
    }
    __device__ __forceinline__ bool holds(int k) const { return is_in(frozen, k); }
    __device__ __forceinline__ bool is_plain() const { return l2 == 0 && !frozen; }
};

struct Measured {
    double kkt, gap;
};

// c of a row in shared memory, -1 for what is held.
__device__ __forceinline__ void load_slopes(const RowTerms& row, float* cs) {
    for (int p = threadIdx.x & 31; p < STRIDE; p += 32) {
        const int k = component(p);
        cs[p] = row.holds(k) ? -1.f : (float)row.slope(k);
    }
    __syncwarp();
}

// The largest residual |min(x c / V, g / c)|, and the gap of docs/maths/stopping.md, "Certificate":
//     linear - V + V log theta + B / theta,   theta = max(max_k S_k / (c_k + l2 x_k), B / V),
// with the sums over what may move and B = sum of x_k S_k over what is held. All x_k S_k sum to V,
// so that linear - V is the sum of x g less B: no digits are lost in float, which S is.
__device__ __forceinline__ Measured measure(const RowTerms& row, const float* xs, const float* Ss,
                                            const float* cs) {
    const float l2 = (float)row.l2, total = (float)row.total, inverse = __fdividef(1.f, total);
    float sum = 0, of_held = 0, steepest = 0, kkt = 0;
    for (int p = threadIdx.x & 31; p < STRIDE; p += 32) {
        const float x = xs[p], S = Ss[p], c = cs[p], slope = c + l2 * x;
        if (c < 0)
            of_held += x * S;
        else
            sum += x * (slope - S);
        if (c >= 0 && slope > 0)
            steepest = fmaxf(steepest, __fdividef(S, slope));
        if (c > 0)
            kkt = fmaxf(kkt, fabsf(fminf(x * c * inverse, __fdividef(slope - S, c))));
    }
    sum = warp_sum(sum), steepest = largest(steepest), kkt = largest(kkt);
    of_held = row.frozen ? warp_sum(of_held) : 0.f;
    const float theta = fmaxf(steepest, of_held * inverse);
    if (!(total > 0))
        return {0.0, 0.0};
    if (!(theta > 0))
        return {kkt, INFINITE};
    const float gap = sum - of_held + total * logf(theta) + __fdividef(of_held, theta);
    return {kkt, fmaxf(gap, 0.f)};
}

// x becomes the same share of every component that may be in use; what is held stays.
__device__ __forceinline__ void start_evenly(const RowTerms& row, float* xs) {
    const int lane = threadIdx.x & 31;
    double sum = 0;
    for (int p = lane; p < STRIDE; p += 32) {
        const int k = component(p);
        sum += row.holds(k) ? 0.0 : row.slope(k);
    }
    sum = warp_sum(sum);
    const float even = sum > 0 ? (float)(row.total / sum) : 0.f;
    for (int p = lane; p < STRIDE; p += 32) {
        const int k = component(p);
        if (!row.holds(k))
            xs[p] = row.slope(k) > 0 ? even : 0.f;
    }
    __syncwarp();
}

__device__ __forceinline__ void load_x(const float* X, float* xs) {
    for (int p = threadIdx.x & 31; p < STRIDE; p += 32)
        xs[p] = X[component(p)];
    __syncwarp();
}
__device__ __forceinline__ void store_x(const float* xs, float* X) {
    for (int p = threadIdx.x & 31; p < STRIDE; p += 32)
        X[component(p)] = xs[p];
}

// c of the rows that miss cells: the sum of the rows of A less those that are missing, or summed
// anew where less than 1/1024 of a component is left, as in the core. One warp for each row.
extern "C" __global__ void observed_slopes(const long long* starts, const long long* missing,
                                           int count, const float* A, long long n_columns,
                                           const double* c, double l1, int rank, double* own_c) {
    const int i = blockIdx.x, lane = threadIdx.x;
    const long long begin = starts[i], end = starts[i + 1];
    bool cancelled = false;
    for (int k = lane; k < rank; k += 32) {
        double sum = c[k];
        for (long long p = begin; p < end; ++p)
            sum -= (double)A[missing[p] * STRIDE + k];
        own_c[(size_t)i * STRIDE + k] = sum;
        cancelled |= sum < c[k] / 1024;
    }
    if (!__any_sync(ALL, cancelled))
        return;
    for (int k = lane; k < rank; k += 32) {
        double sum = l1;
        long long p = begin;
        for (long long j = 0; j < n_columns; ++j) {
            if (p < end && missing[p] == j)
                ++p;
            else
                sum += (double)A[j * STRIDE + k];
        }
        own_c[(size_t)i * STRIDE + k] = sum;
    }
}

extern "C" __global__ void start_rows(int n_rows, float* X, TERM_ARGUMENTS) {
    __shared__ float all[4][STRIDE];
    const int row = blockIdx.x * 4 + (threadIdx.x >> 5);
    if (row >= n_rows)
        return;
    float* const xs = all[threadIdx.x >> 5];
    load_x(X + (size_t)row * STRIDE, xs);
    start_evenly(RowTerms(TERMS, row), xs);
    store_x(xs, X + (size_t)row * STRIDE);
}
