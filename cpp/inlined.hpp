// How the functions of kernels are compiled, and what they use instead of inline functions of the
// standard library.
//
// Kernel sources are compiled once for every instruction set (see kernel_set.hpp). An inline
// function that two files have compiled is one function for the linker, which keeps either of them:
// code for AVX-512 might then run on a processor without it. So in kernels everything is part of
// its caller, whatever the level of optimisation (KLNMF_INLINE), or belongs to its file
// (KLNMF_OWN). tools/check_sets.py looks at the object files whenever they are compiled.
#pragma once

#include <limits>

#define KLNMF_INLINE inline __attribute__((always_inline))

// For large functions with several callers: every inlined copy takes seconds to compile.
#define KLNMF_OWN static __attribute__((noinline))

// After the parameters of a lambda.
#define KLNMF_INLINE_LAMBDA __attribute__((always_inline))

namespace klnmf {

template <class T>
struct Limits {
    static constexpr T min = std::numeric_limits<T>::min(), max = std::numeric_limits<T>::max();
    static constexpr T lowest = std::numeric_limits<T>::lowest();
    static constexpr T epsilon = std::numeric_limits<T>::epsilon();
    static constexpr T infinity = std::numeric_limits<T>::infinity();
};

// std::min and std::max; they return a if b is NaN.
template <class T>
KLNMF_INLINE T min_of(T a, T b) {
    return b < a ? b : a;
}

template <class T>
KLNMF_INLINE T max_of(T a, T b) {
    return a < b ? b : a;
}

KLNMF_INLINE float square_root(float x) {
    return __builtin_sqrtf(x);
}

KLNMF_INLINE double square_root(double x) {
    return __builtin_sqrt(x);
}

KLNMF_INLINE float absolute(float x) {
    return __builtin_fabsf(x);
}

KLNMF_INLINE double absolute(double x) {
    return __builtin_fabs(x);
}

} // namespace klnmf
