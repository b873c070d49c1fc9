// The parts of the value and of the optimality of one row problem, in double whatever the type of
// the factors; row_evaluation.hpp puts them together.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "inlined.hpp"
#include "row_job.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

// log(y) for normal y > 0 in every lane of a vector of doubles: with y = 2^e m and
// sqrt(1/2) <= m < sqrt(2), s = (m - 1)/(m + 1), log m = 2 atanh(s) = 2 s (1 + s^2/3 + s^4/5 +
// ...). The series is cut where its next term is below 1e-17 (s^2 < 0.0295).
template <class V>
KLNMF_INLINE V log_positive(V y) {
    typedef std::uint64_t Bits __attribute__((vector_size(sizeof(V))));
    constexpr std::uint64_t sqrt_half = 0x3fe6a09e667f3bcdULL;
    constexpr std::uint64_t bias = 1023;
    const Bits bits = reinterpret_cast<Bits>(y);
    // Biased so that the shift works on a positive number: exponent of y / sqrt(1/2), plus `bias`.
    const Bits exponent = (bits - sqrt_half + (bias << 52)) >> 52;
    const V m = reinterpret_cast<V>(bits - ((exponent - bias) << 52));
    // 2^52 + exponent, read as a double, gives the exponent without an integer conversion.
    const V e = reinterpret_cast<V>(exponent | 0x4330000000000000ULL) -
                (4503599627370496.0 + static_cast<double>(bias));
    const V s = (m - 1.0) / (m + 1.0);
    const V z = s * s;
    V series = z * (1.0 / 19) + 1.0 / 17;
    series = series * z + 1.0 / 15;
    series = series * z + 1.0 / 13;
    series = series * z + 1.0 / 11;
    series = series * z + 1.0 / 9;
    series = series * z + 1.0 / 7;
    series = series * z + 1.0 / 5;
    series = series * z + 1.0 / 3;
    constexpr double log2_high = 6.93147180369123816490e-01;
    constexpr double log2_low = 1.90821492927058770002e-10;
    return e * log2_high + (2.0 * s + (2.0 * s * z * series + e * log2_low));
}

// sum_i v_i log y_i.
template <class T>
KLNMF_INLINE double weighted_log_sum(const T* v, const double* y, std::int64_t length) {
    typedef double Four __attribute__((vector_size(32)));
    Four sum{};
    std::int64_t i = 0;
    for (; i + 4 <= length; i += 4) {
        Four weights;
        for (int j = 0; j < 4; ++j)
            weights[j] = v[i + j];
        sum += weights * log_positive(load(y + i));
    }
    Four last_y = Four{} + 1.0, last_weights{};
    for (int j = 0; j < 4; ++j) {
        if (i + j >= length)
            break;
        last_y[j] = y[i + j];
        last_weights[j] = v[i + j];
    }
    sum += last_weights * log_positive(last_y);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// The part of f that does not look at the nonzeros: c.x + l2/2 |x|^2.
template <class T>
KLNMF_INLINE double linear_and_quadratic(const FixedSide<T>& fixed, const T* x) {
    const double* const c = fixed.c;
    const int rank = fixed.rank;
    double linear = 0, squares = 0;
#pragma omp simd reduction(+ : linear)
    for (int k = 0; k < rank; ++k)
        linear += c[k] * static_cast<double>(x[k]);
    for (int k = 0; fixed.l2 > 0 && k < rank; ++k)
        squares += static_cast<double>(x[k]) * static_cast<double>(x[k]);
    return linear + 0.5 * fixed.l2 * squares;
}

// Violation of the optimality conditions by one entry, |min(x_k c_k / sum(v), g_k / c_k)|, from its
// two parts: free of the scale of either factor. For numbers and for vectors of them.
template <class V>
KLNMF_INLINE V entry_residual(V slack, V gradient) {
    const V least = slack < gradient ? slack : gradient;
    return least < 0 ? -least : least;
}

// The same from x, c and g; a dead component (c = 0) has no condition to violate.
KLNMF_INLINE double entry_residual(double x, double c, double g, double total) {
    return c > 0 ? entry_residual(x * c / total, g / c) : 0.0;
}

} // namespace klnmf
