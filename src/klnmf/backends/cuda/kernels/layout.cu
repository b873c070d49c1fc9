// Where things are: factor rows, the components of a lane, the nonzeros of a task.
//
// A factor row has STRIDE floats: NB blocks of LD = 8 NT, whole sectors of 32 bytes; what is beyond
// the rank is 0. One warp works on a task, which is a short row or a piece of a long one. Lane
// 4 g + t holds, of every fourth nonzero, the components place(8 n + g) for n < NT. This is the
// layout of the operands of mma.m16n8k16: what is loaded for A x serves for A^T diag A as well.
//
// NT, NB, WPB (warps in a block), LIVE (blocks on a multiprocessor) and OFFSET are set by modules.py.
constexpr int LD = 8 * NT, STRIDE = LD * NB, NM = (NT + 1) / 2;
__device__ constexpr int count_tiles() {
    int sum = 0;
    for (int m = 0; m < NM; ++m)
        sum += NT - 2 * m;
    return sum;
}
constexpr int TILES = count_tiles();
constexpr int MASKS = (STRIDE + 63) / 64; // words of a set of components
constexpr unsigned ALL = 0xffffffffu;
static_assert(NT >= 1 && NT <= 7 && NB >= 1, "ranks up to 56 in a block");

using Mask = unsigned long long;

// As in the core: an entry that is smaller is 0, and a nonzero counts as covered where y exceeds
// both that and this share of v, so that v / y cannot overflow.
constexpr float SMALLEST_COVER = 1.1754944e-32f, SMALLEST_SHARE = 1.1754944e-30f;
#define INFINITE __longlong_as_double(0x7ff0000000000000ll)

// What launches of one half-step tell each other of a row: nothing is left to do; a nonzero was not
// covered, so that x started evenly and what nothing covers is dropped; it has not moved since.
enum State : unsigned char { DONE = 1, DROPPED = 2, WAITS = 4 };

struct Tasks {
    const int* list; // numbers of tasks, or null: all
    int count;
    const int* row;
    const long long *begin, *end;
    const int* slot; // of a piece, in the partial sums; -1: the task is a whole row
    const int* columns;
    const float* values;
};
#define TASK_ARGUMENTS                                                                             \
    const int *t_list, int t_count, const int *t_row, const long long *t_begin,                    \
        const long long *t_end, const int *t_slot, const int *columns, const float *values
#define TASKS                                                                                      \
    Tasks { t_list, t_count, t_row, t_begin, t_end, t_slot, columns, values }

// From the position of a component in a block, as lanes hold it, to its place in the factor row: a
// lane loads four neighbours at once, then two, then one.
__device__ __forceinline__ int place(int p) {
    const int n = p >> 3, g = p & 7;
    constexpr int fours = NT / 4 * 4;
    if (n < fours)
        return (n >> 2) * 32 + 4 * g + (n & 3);
    if constexpr ((NT & 2) != 0) {
        if (n < fours + 2)
            return fours * 8 + 2 * g + (n - fours);
    }
    return (NT - 1) * 8 + g;
}
// The same for all blocks.
__device__ __forceinline__ int component(int p) {
    if constexpr (NB == 1)
        return place(p);
    else
        return p / LD * LD + place(p % LD);
}

// A lane's components of one block of a row of A.
__device__ __forceinline__ void load_row(const float* __restrict__ A, int id, int g, float (&a)[NT]) {
    const float* p = A + (OFFSET)id * (OFFSET)STRIDE;
    constexpr int fours = NT / 4 * 4;
#pragma unroll
    for (int n = 0; n < fours; n += 4) {
        const float4 f = __ldg(reinterpret_cast<const float4*>(p + 8 * n) + g);
        a[n] = f.x, a[n + 1] = f.y, a[n + 2] = f.z, a[n + 3] = f.w;
    }
    if constexpr ((NT & 2) != 0) {
        const float2 f = __ldg(reinterpret_cast<const float2*>(p + 8 * fours) + g);
        a[fours] = f.x, a[fours + 1] = f.y;
    }
    if constexpr ((NT & 1) != 0)
        a[NT - 1] = __ldg(p + 8 * (NT - 1) + g);
}

struct Four {
    int4 id;
    float4 v;
};
__device__ __forceinline__ void load_rows(const float* __restrict__ A, const int4& id, int g,
                                          float (&a)[4][NT]) {
    load_row(A, id.x, g, a[0]), load_row(A, id.y, g, a[1]);
    load_row(A, id.z, g, a[2]), load_row(A, id.w, g, a[3]);
}

// A lane's four nonzeros of a step of 16, from place i after an aligned start. Those outside
// [low, high) have the value 0 and the first row of A.
__device__ __forceinline__ Four load_four(const int* __restrict__ columns,
                                          const float* __restrict__ values, int i, int low,
                                          int high) {
    Four four;
    if (i >= low && i + 4 <= high) {
        four.id = __ldcs(reinterpret_cast<const int4*>(columns + i));
        four.v = __ldcs(reinterpret_cast<const float4*>(values + i));
        return four;
    }
    four.id = make_int4(0, 0, 0, 0), four.v = make_float4(0, 0, 0, 0);
    if (i >= low && i < high)
        four.id.x = columns[i], four.v.x = values[i];
    if (i + 1 >= low && i + 1 < high)
        four.id.y = columns[i + 1], four.v.y = values[i + 1];
    if (i + 2 >= low && i + 2 < high)
        four.id.z = columns[i + 2], four.v.z = values[i + 2];
    if (i + 3 >= low && i + 3 < high)
        four.id.w = columns[i + 3], four.v.w = values[i + 3];
    return four;
}

// The nonzeros of a task from an aligned start on, in steps of 16.
struct Steps {
    const int* columns;
    const float* values;
    int low, high, count;
    __device__ Steps(const Tasks& tasks, int task) {
        const long long begin = tasks.begin[task], start = begin & ~3ll;
        columns = tasks.columns + start, values = tasks.values + start;
        low = (int)(begin - start), high = (int)(tasks.end[task] - start);
        count = high > low ? (high + 15) >> 4 : 0;
    }
    __device__ __forceinline__ Four at(int step, int t) const {
        return load_four(columns, values, 4 * t + 16 * step, low, high);
    }
};

// ---- lanes ---------------------------------------------------------------------------------------

template <class T>
__device__ __forceinline__ T warp_sum(T v) {
#pragma unroll
    for (int o = 16; o; o >>= 1)
        v += __shfl_xor_sync(ALL, v, o);
    return v;
}
template <class T>
__device__ __forceinline__ T warp_max(T v) {
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        const T other = __shfl_xor_sync(ALL, v, o);
        v = other > v ? other : v;
    }
    return v;
}

// The largest of numbers that are not negative: their bits have the same order.
__device__ __forceinline__ float largest(float v) {
#if __CUDA_ARCH__ >= 800
    return __uint_as_float(__reduce_max_sync(ALL, __float_as_uint(v)));
#else
    return warp_max(v);
#endif
}

// Which of its four nonzeros a lane has the sum of after fold_four; lanes that differ in bit 2 have
// the same one.
__device__ __forceinline__ int own_of_four(int lane) {
    return ((lane >> 4) & 1) | ((lane >> 2) & 2);
}
__device__ __forceinline__ float own_of(const float4& v, int lane) {
    const bool h = lane & 16;
    return lane & 8 ? (h ? v.w : v.z) : (h ? v.y : v.x);
}
// The lane from which nonzero q of a lane's four comes back.
__device__ __forceinline__ int lane_of(int q, int t) {
    return t | ((q & 1) << 4) | ((q >> 1) << 3);
}
// Sums over g of four numbers each, in a fixed tree.
template <class T>
__device__ __forceinline__ T fold_four(const T (&y)[4], int lane) {
    const bool h = lane & 16, h2 = lane & 8;
    T k0 = h ? y[1] : y[0], k1 = h ? y[3] : y[2];
    k0 += __shfl_xor_sync(ALL, h ? y[0] : y[1], 16);
    k1 += __shfl_xor_sync(ALL, h ? y[2] : y[3], 16);
    T k = h2 ? k1 : k0;
    k += __shfl_xor_sync(ALL, h2 ? k0 : k1, 8);
    k += __shfl_xor_sync(ALL, k, 4);
    return k;
}

// S of a block from its lanes' parts to shared memory.
template <class T>
__device__ __forceinline__ void store_sums(T (&S)[NT], int lane, T* to) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
        S[n] += __shfl_xor_sync(ALL, S[n], 1);
        S[n] += __shfl_xor_sync(ALL, S[n], 2);
        if ((lane & 3) == 0)
            to[8 * n + (lane >> 2)] = S[n];
    }
}
