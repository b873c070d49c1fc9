// Value, residual and gap of rows, with y, S and all sums in double.

constexpr int WIDE_PART = STRIDE + 2; // doubles of a piece: S, sum_i v_i log y_i, and the flag

// As measure in row_terms.cu, in double.
__device__ __forceinline__ Measured measure_exactly(const RowTerms& row, const float* xs,
                                                    const double* Ss) {
    double linear = 0, of_held = 0, steepest = 0, kkt = 0;
    for (int p = threadIdx.x & 31; p < STRIDE; p += 32) {
        const int k = component(p);
        const double x = xs[p], S = Ss[p], c = row.slope(k), slope = c + row.l2 * x;
        if (row.holds(k)) {
            of_held += x * S;
            continue;
        }
        linear += slope * x;
        if (slope > 0)
            steepest = fmax(steepest, S / slope);
        if (c > 0)
            kkt = fmax(kkt, fabs(fmin(x * c / row.total, (slope - S) / c)));
    }
    linear = warp_sum(linear), of_held = warp_sum(of_held);
    steepest = warp_max(steepest), kkt = warp_max(kkt);
    if (!(row.total > 0))
        return {0.0, linear};
    const double theta = fmax(steepest, of_held / row.total);
    if (!(theta > 0))
        return {kkt, INFINITE};
    const double gap = linear - row.total + row.total * log(theta) + of_held / theta;
    return {kkt, gap < 0 ? 0.0 : gap};
}

// A row from its sums: f(x) = c.x + l2/2 |x|^2 - logs.
__device__ __forceinline__ void write_evaluation(const RowTerms& row, int number, bool uncovered,
                                                 double logs, int with_sums, const float* xs,
                                                 const double* Ss, double* values, double* kkt,
                                                 double* gaps) {
    const int lane = threadIdx.x & 31;
    double linear = 0, square = 0;
    for (int p = lane; p < STRIDE; p += 32) {
        const double x = xs[p];
        linear += row.slope(component(p)) * x, square += x * x;
    }
    linear = warp_sum(linear), square = warp_sum(square);
    Measured found{0, 0};
    if (with_sums && !uncovered)
        found = measure_exactly(row, xs, Ss);
    if (lane != 0)
        return;
    values[number] = uncovered ? INFINITE : linear + 0.5 * row.l2 * square - logs;
    kkt[number] = uncovered ? INFINITE : found.kkt;
    gaps[number] = uncovered ? INFINITE : found.gap;
}

template <bool SUMS>
__device__ __forceinline__ void evaluate_task(const Tasks& tasks, const float* __restrict__ A,
                                              const float* X, const Terms& terms, double* parts,
                                              double* values, double* kkt, double* gaps) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, task = blockIdx.x;
    const int number = tasks.row[task], slot = tasks.slot[task];
    float* const xs = shared;
    double* const Ss = reinterpret_cast<double*>(shared + (STRIDE + 1) / 2 * 2);
    load_x(X + (size_t)number * STRIDE, xs);
    const Steps steps(tasks, task);
    bool uncovered = false;
    double logs = 0, S[SUMS ? NB : 1][NT];
#pragma unroll
    for (int b = 0; b < (SUMS ? NB : 1); ++b)
#pragma unroll
        for (int n = 0; n < NT; ++n)
            S[b][n] = 0;
    Four now = steps.at(0, t), next = steps.at(1, t);
    float a[4][NT];
    if constexpr (NB == 1)
        load_rows(A, now.id, g, a);
#pragma unroll 1
    for (int s = 0; s < steps.count; ++s) {
        float ahead[4][NT];
        double y[4] = {0, 0, 0, 0};
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
            for (int n = 0; n < NT; ++n) {
                const double x = xs[b * LD + 8 * n + g];
#pragma unroll
                for (int q = 0; q < 4; ++q)
                    y[q] += (double)a[q][n] * x;
            }
        }
        const double product = fold_four(y, lane), v = own_of(four.v, lane);
        const bool covered = product > 2.2250738585072014e-308;
        uncovered |= v > 0 && !covered;
        // A nonzero is in two lanes, see own_of_four.
        logs += v > 0 && covered && !(lane & 4) ? v * log(product) : 0.0;
        if constexpr (SUMS) {
            const double ratio = covered ? v / product : 0.0;
            double u[4];
#pragma unroll
            for (int q = 0; q < 4; ++q)
                u[q] = __shfl_sync(ALL, ratio, lane_of(q, t));
#pragma unroll
            for (int b = 0; b < NB; ++b) {
                if constexpr (NB > 1)
                    load_rows(A + b * LD, four.id, g, a);
#pragma unroll
                for (int n = 0; n < NT; ++n)
#pragma unroll
                    for (int q = 0; q < 4; ++q)
                        S[b][n] += u[q] * (double)a[q][n];
            }
        }
        if constexpr (NB == 1) {
#pragma unroll
            for (int q = 0; q < 4; ++q)
#pragma unroll
                for (int n = 0; n < NT; ++n)
                    a[q][n] = ahead[q][n];
        }
    }
    logs = warp_sum(logs);
    uncovered = __any_sync(ALL, uncovered);
    if constexpr (SUMS)
#pragma unroll
        for (int b = 0; b < NB; ++b)
            store_sums(S[b], lane, Ss + b * LD);
    __syncwarp();
    if (slot >= 0) {
        double* const part = parts + (size_t)slot * WIDE_PART;
        for (int p = lane; SUMS && p < STRIDE; p += 32)
            part[p] = Ss[p];
        if (lane == 0)
            part[STRIDE] = logs, part[STRIDE + 1] = uncovered;
        return;
    }
    write_evaluation(RowTerms(terms, number), number, uncovered, logs, SUMS, xs, Ss, values, kkt,
                     gaps);
}
extern "C" __global__ void __launch_bounds__(32)
    evaluate(TASK_ARGUMENTS, const float* A, const float* X, TERM_ARGUMENTS, double* parts,
             double* row_values, double* kkt, double* gaps) {
    evaluate_task<true>(TASKS, A, X, TERMS, parts, row_values, kkt, gaps);
}
extern "C" __global__ void __launch_bounds__(32)
    value(TASK_ARGUMENTS, const float* A, const float* X, TERM_ARGUMENTS, double* parts,
          double* row_values, double* kkt, double* gaps) {
    evaluate_task<false>(TASKS, A, X, TERMS, parts, row_values, kkt, gaps);
}
extern "C" __global__ void __launch_bounds__(128)
    evaluate_long(const int* rows, const int* first, const float* X, TERM_ARGUMENTS, int with_sums,
                  const double* parts, double* row_values, double* kkt, double* gaps) {
    __shared__ float xs[STRIDE];
    __shared__ double Ss[STRIDE + 2];
    const int number = rows[blockIdx.x], from = first[blockIdx.x], to = first[blockIdx.x + 1];
    for (int p = threadIdx.x + (with_sums ? 0 : STRIDE); p < STRIDE + 2; p += blockDim.x) {
        double sum = 0;
#pragma unroll 8
        for (int i = from; i < to; ++i)
            sum += parts[(size_t)i * WIDE_PART + p];
        Ss[p] = sum;
    }
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    load_x(X + (size_t)number * STRIDE, xs);
    write_evaluation(RowTerms(TERMS, number), number, Ss[STRIDE + 1] > 0, Ss[STRIDE], with_sums, xs,
                     Ss, row_values, kkt, gaps);
}

// ---- sums over rows, always in the same order ----------------------------------------------------

// Of blocks of 4096 rows: the sum of the values, the largest residual, the sum of the gaps.
extern "C" __global__ void __launch_bounds__(256)
    totals_of_rows(int n_rows, const double* row_values, const double* kkt, const double* gaps,
                   double* out) {
    __shared__ double all[3][256];
    const int i = threadIdx.x, from = blockIdx.x * 4096, to = min(n_rows, from + 4096);
    double of_values = 0, of_gaps = 0, worst = 0;
    for (int row = from + i; row < to; row += 256) {
        of_values += row_values ? row_values[row] : 0.0, of_gaps += gaps[row];
        worst = kkt[row] > worst ? kkt[row] : worst;
    }
    all[0][i] = of_values, all[1][i] = worst, all[2][i] = of_gaps;
    for (int half = 128; half; half >>= 1) {
        __syncthreads();
        if (i < half) {
            all[0][i] += all[0][i + half], all[2][i] += all[2][i + half];
            all[1][i] = fmax(all[1][i], all[1][i + half]);
        }
    }
    __syncthreads();
    if (i < 3)
        out[3 * blockIdx.x + i] = all[i][0];
}

// Of strips of rows: column sums of the entries, of their squares, and the number of zeros. The
// shares of the penalties (null: 1) multiply the first two.
extern "C" __global__ void column_sums(const float* X, long long n_rows, int rows_of_strip,
                                       const double* shares, double* out) {
    const int k = blockIdx.y * 32 + threadIdx.x, y = threadIdx.y;
    __shared__ double all[3][8][32];
    const long long from = (long long)blockIdx.x * rows_of_strip;
    const long long to = min(n_rows, from + rows_of_strip);
    double sum = 0, squares = 0, zeros = 0;
    for (long long i = from + y; k < STRIDE && i < to; i += 8) {
        const float entry = X[i * STRIDE + k];
        const double x = entry;
        sum += shares ? x * shares[2 * i] : x;
        squares += shares ? x * x * shares[2 * i + 1] : x * x;
        zeros += entry == 0.f;
    }
    all[0][y][threadIdx.x] = sum, all[1][y][threadIdx.x] = squares, all[2][y][threadIdx.x] = zeros;
    __syncthreads();
    if (y >= 3 || k >= STRIDE)
        return;
    double total = 0;
    for (int i = 0; i < 8; ++i)
        total += all[y][i][threadIdx.x];
    out[((long long)blockIdx.x * 3 + y) * STRIDE + k] = total;
}

// The strips of column_sums in their order; slopes (null: not wanted) are the sums plus l1.
extern "C" __global__ void add_strips(const double* strips, int count, int rank, double l1,
                                      double* out, double* slopes) {
    const int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= 3 * STRIDE)
        return;
    double sum = 0;
#pragma unroll 8
    for (int i = 0; i < count; ++i)
        sum += strips[(long long)i * 3 * STRIDE + p];
    out[p] = sum;
    if (slopes && p < STRIDE)
        slopes[p] = p < rank ? sum + l1 : 0.0;
}

extern "C" __global__ void extrapolate(const float* newest, const float* previous, float weight,
                                       float keep, long long size, float* out) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size)
        out[i] = fmaxf(newest[i] + weight * (newest[i] - previous[i]), keep * newest[i]);
}
