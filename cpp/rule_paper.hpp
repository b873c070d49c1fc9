// "srcd-paper": Algorithm 2 of the SRCD paper as printed, for comparison: projected Newton steps on
// one coordinate until they are small, with no guard against overshooting.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "inlined.hpp"
#include "row_gather.hpp"
#include "row_problem.hpp"

namespace klnmf {

struct PaperSettings {
    const std::int32_t* order;
    double epsilon;         // the paper's epsilon: in log(y + epsilon) and in the loop's test
    double relative_change; // epsilon_x: the inner loop ends when |dx| < epsilon_x x
    bool signed_break;      // the test as printed, dx < epsilon_x x, which any downward step passes
    int max_newton;         // a bound on the inner loop, which the paper does not have
};

template <class T>
KLNMF_INLINE double paper_coordinate(const Row<T>& row, T& x, double c, const T* column,
                                     const PaperSettings& settings, RowScratch<T>& scratch) {
    const std::int64_t length = row.padded_length;
    const T epsilon = static_cast<T>(settings.epsilon);
    double violation = 0;
    for (int newton = 0; newton < settings.max_newton; ++newton) {
        double S = 0, h = 0;
        for (std::int64_t start = 0; start < length; start += piece) {
            const std::int64_t end = min_of(start + piece, length);
            T S_piece = 0, h_piece = 0;
#pragma omp simd reduction(+ : S_piece, h_piece)
            for (std::int64_t i = start; i < end; ++i) {
                const T t = column[i] / (scratch.y[i] + epsilon);
                S_piece += scratch.v[i] * t;
                h_piece += scratch.v[i] * t * t;
            }
            S += static_cast<double>(S_piece);
            h += static_cast<double>(h_piece);
        }
        const double g = c + row.fixed.l2 * x - S;
        const double curvature = h + row.fixed.l2;
        if (newton == 0)
            violation = entry_residual(x, c, g, row.total);
        const bool goes_on =
            g < -settings.epsilon || (absolute(g) > settings.epsilon && x > settings.epsilon);
        if (!goes_on || !(curvature > 0) || !__builtin_isfinite(g))
            break;
        const T before = x;
        x = static_cast<T>(max_of(0.0, before - g / curvature));
        const T delta = x - before;
        move_product(scratch.y, delta, column, length);
        const double change = settings.signed_break ? delta : absolute(delta);
        if (change < settings.relative_change * before)
            break;
    }
    return violation;
}

// Returns the largest violation met.
template <class T>
KLNMF_INLINE double paper_row(const Row<T>& row, const PaperSettings& settings,
                              RowScratch<T>& scratch) {
    T* x = scratch.x;
    double largest = 0;
    const int rank = row.fixed.rank;
    product(row, x, scratch);
    const int group =
        static_cast<int>(min_of<std::int64_t>(scratch.columns_at_once(row.length), rank));
    for (int first = 0; first < rank; first += group) {
        const int count = min_of(group, rank - first);
        gather_columns(row, settings.order + first, count, scratch);
        for (int j = 0; j < count; ++j) {
            const int k = settings.order[first + j];
            const double c = row.fixed.c[k];
            if (!(c > 0)) {
                x[k] = 0;
                continue;
            }
            const double violation = paper_coordinate(
                row, x[k], c, scratch.columns + j * row.padded_length, settings, scratch);
            largest = max_of(largest, violation);
        }
    }
    return largest;
}

} // namespace klnmf
