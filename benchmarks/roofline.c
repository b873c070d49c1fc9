/* What one core of this machine can do, for benchmarks/roofline.py. */

#include <stdint.h>

/* Sum of n floats: the rate at which values and indices can be streamed. */
float stream(const float* x, int64_t n) {
    float sums[64] = {0};
    for (int64_t i = 0; i + 64 <= n; i += 64)
        for (int j = 0; j < 64; ++j)
            sums[j] += x[i + j];
    float total = 0;
    for (int j = 0; j < 64; ++j)
        total += sums[j];
    return total;
}

/* Sum of the rows of A (width floats each, a multiple of 8, 104 at most) at these places: the rate
   at which the rows of the fixed factor can be had, with one addition for each entry and none of
   the other work. */
#define WIDTH(w)                                                                                   \
    case w: {                                                                                      \
        float sums[w] = {0};                                                                       \
        for (int64_t i = 0; i < n; ++i) {                                                          \
            __builtin_prefetch(A + (int64_t)places[i + 16] * w);                                   \
            const float* row = A + (int64_t)places[i] * w;                                         \
            for (int k = 0; k < w; ++k)                                                            \
                sums[k] += row[k];                                                                 \
        }                                                                                          \
        for (int k = 0; k < w; ++k)                                                                \
            total += sums[k];                                                                      \
        break;                                                                                     \
    }

/* There are 16 more places than n, for the prefetch. */
float gather(const float* A, const int32_t* places, int64_t n, int width) {
    float total = 0;
    switch (width) {
        WIDTH(8)
        WIDTH(16)
        WIDTH(24)
        WIDTH(32)
        WIDTH(40)
        WIDTH(48)
        WIDTH(56)
        WIDTH(64)
        WIDTH(72)
        WIDTH(80)
        WIDTH(88)
        WIDTH(96)
        WIDTH(104)
    }
    return total;
}

/* n rounds of 128 fused multiply-adds in registers. */
float multiply_add(int64_t n, float a, float b) {
    float x[128];
    for (int j = 0; j < 128; ++j)
        x[j] = (float)j;
    for (int64_t i = 0; i < n; ++i)
        for (int j = 0; j < 128; ++j)
            x[j] = x[j] * a + b;
    float total = 0;
    for (int j = 0; j < 128; ++j)
        total += x[j];
    return total;
}
