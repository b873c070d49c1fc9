// Short vectors in GNU C++ vector syntax: the compiler lowers them to whatever the instruction set
// has (one AVX register, two SSE or NEON ones), so that one source serves all of them, with no
// intrinsics.
#pragma once

#include <cstdint>

#include "inlined.hpp"

// Vectors wider than the baseline's registers are passed between functions here, which are all
// inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace klnmf {

// 32 bytes: 8 floats or 4 doubles. `Loose` may stand at any address of its element type; `Wide` has
// as many lanes, in double.
template <class T>
struct Lanes;

template <>
struct Lanes<float> {
    static constexpr int count = 8;
    typedef float Vector __attribute__((vector_size(32)));
    typedef float Loose __attribute__((vector_size(32), aligned(4), may_alias));
    typedef std::int32_t Mask __attribute__((vector_size(32)));
    typedef double Wide __attribute__((vector_size(64)));
};

template <>
struct Lanes<double> {
    static constexpr int count = 4;
    typedef double Vector __attribute__((vector_size(32)));
    typedef double Loose __attribute__((vector_size(32), aligned(8), may_alias));
    typedef std::int64_t Mask __attribute__((vector_size(32)));
    typedef double Wide __attribute__((vector_size(32)));
};

template <class T>
KLNMF_INLINE typename Lanes<T>::Vector load(const T* from) {
    return *reinterpret_cast<const typename Lanes<T>::Loose*>(from);
}

template <class T>
KLNMF_INLINE void store(T* to, typename Lanes<T>::Vector value) {
    *reinterpret_cast<typename Lanes<T>::Loose*>(to) = value;
}

// As many numbers of a type that may be wider, rounded to T.
template <class T>
KLNMF_INLINE typename Lanes<T>::Vector load_as(const T* from) {
    return load(from);
}

template <class T>
    requires(sizeof(T) == 4)
KLNMF_INLINE typename Lanes<T>::Vector load_as(const double* from) {
    typename Lanes<T>::Wide wide;
    __builtin_memcpy(&wide, from, sizeof wide);
    return __builtin_convertvector(wide, typename Lanes<T>::Vector);
}

// 0, 1, 2, ...: what tells the lanes apart.
template <class T>
KLNMF_INLINE typename Lanes<T>::Mask lane_numbers() {
    typename Lanes<T>::Mask numbers{};
    for (int l = 0; l < Lanes<T>::count; ++l)
        numbers[l] = l;
    return numbers;
}

// The larger of two numbers, or of two in every lane; `b` where `a` is not a number.
template <class V>
KLNMF_INLINE V larger(V a, V b) {
    return a > b ? a : b;
}

template <class Mask>
KLNMF_INLINE bool any_lane(Mask mask) {
    auto any = mask[0];
#pragma GCC unroll 8
    for (std::size_t l = 1; l < sizeof(Mask) / sizeof(mask[0]); ++l)
        any |= mask[l];
    return any != 0;
}

// Lane j of the result is the sum of the lanes of parts[j]: a tree of additions on interleaved
// pairs.
KLNMF_INLINE Lanes<float>::Vector sum_each(const Lanes<float>::Vector (&parts)[8]) {
    using V = Lanes<float>::Vector;
    V pairs[4], quads[2];
    for (int j = 0; j < 4; ++j) {
        const V a = parts[2 * j], b = parts[2 * j + 1];
        pairs[j] = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) +
                   __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int j = 0; j < 2; ++j) {
        const V a = pairs[2 * j], b = pairs[2 * j + 1];
        quads[j] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
                   __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    return __builtin_shufflevector(quads[0], quads[1], 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(quads[0], quads[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

KLNMF_INLINE Lanes<double>::Vector sum_each(const Lanes<double>::Vector (&parts)[4]) {
    using V = Lanes<double>::Vector;
    V pairs[2];
    for (int j = 0; j < 2; ++j) {
        const V a = parts[2 * j], b = parts[2 * j + 1];
        pairs[j] =
            __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
    }
    return __builtin_shufflevector(pairs[0], pairs[1], 0, 1, 4, 5) +
           __builtin_shufflevector(pairs[0], pairs[1], 2, 3, 6, 7);
}

// repeated[j] is lane j of the vector in every lane.
KLNMF_INLINE void repeat_each(Lanes<float>::Vector a, Lanes<float>::Vector (&repeated)[8]) {
    repeated[0] = __builtin_shufflevector(a, a, 0, 0, 0, 0, 0, 0, 0, 0);
    repeated[1] = __builtin_shufflevector(a, a, 1, 1, 1, 1, 1, 1, 1, 1);
    repeated[2] = __builtin_shufflevector(a, a, 2, 2, 2, 2, 2, 2, 2, 2);
    repeated[3] = __builtin_shufflevector(a, a, 3, 3, 3, 3, 3, 3, 3, 3);
    repeated[4] = __builtin_shufflevector(a, a, 4, 4, 4, 4, 4, 4, 4, 4);
    repeated[5] = __builtin_shufflevector(a, a, 5, 5, 5, 5, 5, 5, 5, 5);
    repeated[6] = __builtin_shufflevector(a, a, 6, 6, 6, 6, 6, 6, 6, 6);
    repeated[7] = __builtin_shufflevector(a, a, 7, 7, 7, 7, 7, 7, 7, 7);
}

KLNMF_INLINE void repeat_each(Lanes<double>::Vector a, Lanes<double>::Vector (&repeated)[4]) {
    repeated[0] = __builtin_shufflevector(a, a, 0, 0, 0, 0);
    repeated[1] = __builtin_shufflevector(a, a, 1, 1, 1, 1);
    repeated[2] = __builtin_shufflevector(a, a, 2, 2, 2, 2);
    repeated[3] = __builtin_shufflevector(a, a, 3, 3, 3, 3);
}

// Sums of the lanes of two vectors at once: half the shuffles of doing one after the other.
struct FloatPair {
    float first, second;
};
KLNMF_INLINE FloatPair sum_both(Lanes<float>::Vector a, Lanes<float>::Vector b) {
    using V = Lanes<float>::Vector;
    // a0+a4 .. a3+a7 in the lower half, the same of b in the upper one.
    const V halves = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
                     __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    const V quarters = halves + __builtin_shufflevector(halves, halves, 2, 3, 0, 1, 6, 7, 4, 5);
    return {quarters[0] + quarters[1], quarters[4] + quarters[5]};
}

struct DoublePair {
    double first, second;
};
KLNMF_INLINE DoublePair sum_both(Lanes<double>::Vector a, Lanes<double>::Vector b) {
    using V = Lanes<double>::Vector;
    const V halves =
        __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
    return {halves[0] + halves[1], halves[2] + halves[3]};
}

// Sum of the lanes of a vector of doubles, by halves.
KLNMF_INLINE double sum_lanes(Lanes<double>::Wide a) {
    return (a[0] + a[2]) + (a[1] + a[3]);
}

KLNMF_INLINE double sum_lanes(Lanes<float>::Wide a) {
    return sum_lanes(__builtin_shufflevector(a, a, 0, 1, 2, 3) +
                     __builtin_shufflevector(a, a, 4, 5, 6, 7));
}

KLNMF_INLINE float largest_lane(Lanes<float>::Vector a) {
    using V = Lanes<float>::Vector;
    const V half = __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3);
    const V b = a > half ? a : half;
    const V quarter = __builtin_shufflevector(b, b, 2, 3, 0, 1, 6, 7, 4, 5);
    const V c = b > quarter ? b : quarter;
    return c[0] > c[1] ? c[0] : c[1];
}

KLNMF_INLINE double largest_lane(Lanes<double>::Vector a) {
    using V = Lanes<double>::Vector;
    const V half = __builtin_shufflevector(a, a, 2, 3, 0, 1);
    const V b = a > half ? a : half;
    return b[0] > b[1] ? b[0] : b[1];
}

// Transposes a square of lanes x lanes numbers held in as many vectors.
KLNMF_INLINE void transpose(Lanes<float>::Vector (&r)[8]) {
    using V = Lanes<float>::Vector;
    V t[8], u[8];
    for (int j = 0; j < 4; ++j) {
        t[2 * j] = __builtin_shufflevector(r[2 * j], r[2 * j + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[2 * j + 1] = __builtin_shufflevector(r[2 * j], r[2 * j + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int h = 0; h < 2; ++h) {
        const V a = t[4 * h], b = t[4 * h + 1], c = t[4 * h + 2], d = t[4 * h + 3];
        u[4 * h] = __builtin_shufflevector(a, c, 0, 1, 8, 9, 4, 5, 12, 13);
        u[4 * h + 1] = __builtin_shufflevector(a, c, 2, 3, 10, 11, 6, 7, 14, 15);
        u[4 * h + 2] = __builtin_shufflevector(b, d, 0, 1, 8, 9, 4, 5, 12, 13);
        u[4 * h + 3] = __builtin_shufflevector(b, d, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int j = 0; j < 4; ++j) {
        r[j] = __builtin_shufflevector(u[j], u[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[j + 4] = __builtin_shufflevector(u[j], u[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

KLNMF_INLINE void transpose(Lanes<double>::Vector (&r)[4]) {
    using V = Lanes<double>::Vector;
    const V a = __builtin_shufflevector(r[0], r[1], 0, 4, 2, 6);
    const V b = __builtin_shufflevector(r[0], r[1], 1, 5, 3, 7);
    const V c = __builtin_shufflevector(r[2], r[3], 0, 4, 2, 6);
    const V d = __builtin_shufflevector(r[2], r[3], 1, 5, 3, 7);
    r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    r[2] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

} // namespace klnmf
