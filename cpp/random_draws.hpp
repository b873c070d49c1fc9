// Random numbers by counter, and exact draws made from them: the same for any number of threads and
// any standard library, whose distributions are not used. A stream belongs to (seed, sweep, row).
#pragma once

#include <cmath>
#include <cstdint>

#include "parallel.hpp"

namespace klnmf {

// The finaliser of splitmix64 (Steele, Lea and Flood): every bit of z changes half of the result's.
KLNMF_INLINE std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

class Draws {
public:
    Draws(std::uint64_t seed, std::uint64_t sweep, std::uint64_t row)
        : state_(mixed(mixed(mixed(seed + step) ^ (sweep * 0xD1342543DE82EF95ULL + 1)) ^
                       (row * 0x2545F4914F6CDD1DULL + 7))) {}

    KLNMF_INLINE std::uint64_t bits() { return mixed(state_ += step); }

    // Uniform in (0, 1), never one of the ends.
    KLNMF_INLINE double uniform() { return (static_cast<double>(bits() >> 12) + 0.5) * 0x1p-52; }

    // Standard normal, by Marsaglia's polar method; it gives two, of which one is kept.
    double normal() {
        if (has_spare_) {
            has_spare_ = false;
            return spare_;
        }
        for (;;) {
            const double u = 2 * uniform() - 1, v = 2 * uniform() - 1, s = u * u + v * v;
            if (s < 1 && s > 0) {
                const double length = std::sqrt(-2 * std::log(s) / s);
                spare_ = v * length;
                has_spare_ = true;
                return u * length;
            }
        }
    }

    // Gamma of scale 1: a sum of exponentials for a small whole shape, Ahrens and Dieter's
    // rejection below shape 1, else that of Marsaglia and Tsang.
    double gamma(double shape) {
        if (shape < 1)
            return gamma_below_one(shape);
        if (shape <= 4 && shape == std::floor(shape)) {
            double product = uniform();
            for (int i = 1; i < static_cast<int>(shape); ++i)
                product *= uniform();
            return -std::log(product);
        }
        const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
        for (;;) {
            const double x = normal(), root = 1 + c * x;
            if (root <= 0)
                continue;
            const double v = root * root * root, u = uniform(), square = x * x;
            if (u < 1 - 0.0331 * square * square ||
                std::log(u) < 0.5 * square + d * (1 - v + std::log(v)))
                return d * v;
        }
    }

    // Binomial: the number of n uniforms below p. Their middle one in rising order is Beta; what is
    // below p is it and all before it and some of those after, or some of those before it (Devroye,
    // chapter X.4). About log2(n / 16) pairs of gamma draws.
    std::int64_t binomial(std::int64_t n, double p) {
        std::int64_t found = 0;
        while (n > 16) {
            const std::int64_t middle = (n + 1) / 2;
            const double before = gamma(static_cast<double>(middle));
            const double after = gamma(static_cast<double>(n + 1 - middle));
            const double place = before / (before + after);
            if (p < place) {
                n = middle - 1;
                p /= place;
            } else {
                found += middle;
                n -= middle;
                p = (p - place) / (1 - place);
            }
        }
        for (; n > 0; --n)
            found += uniform() < p;
        return found;
    }

private:
    double gamma_below_one(double shape) {
        const double b = 1 + shape * 0.36787944117144233; // 1 / e
        for (;;) {
            const double p = b * uniform(), u = uniform();
            if (p <= 1) {
                const double x = std::exp(std::log(p) / shape);
                if (u <= 1 - x || u <= std::exp(-x))
                    return x + smallest;
            } else {
                const double x = -std::log((b - p) / shape);
                if (std::log(u) <= (shape - 1) * std::log(x))
                    return x;
            }
        }
    }

    static constexpr std::uint64_t step = 0x9E3779B97F4A7C15ULL;
    static constexpr double smallest = 1e-280; // what is positive stays so
    std::uint64_t state_;
    double spare_ = 0;
    bool has_spare_ = false;
};

// Number of the first of `n` rising sums above t; the last one if none is.
KLNMF_INLINE int place_of(double t, const double* sums, int n) {
    int place = 0;
    for (int k = 0; k < n - 1; ++k)
        place += sums[k] <= t;
    return place;
}

} // namespace klnmf
