// "ccd": Hsieh and Dhillon's cyclic coordinate descent, which keeps the dense product P = W H^T.
// Every step of one coordinate updates a whole row of P; that is what the sparse methods save.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "inlined.hpp"
#include "objective.hpp"
#include "row_job.hpp"

namespace klnmf {

struct DenseSettings {
    double relative_change; // the inner Newton loop ends when |dx| < relative_change * x
    double floor;           // entries never fall below this, so that P > 0 (and no entry is ever 0)
    int max_newton;
};

// Cyclic projected Newton on a row, with y = (A x) for all columns kept up to date; returns its
// residual. In this job A is transposed (rank x n_rows): the update of y then runs along memory.
template <class T>
KLNMF_INLINE double dense_row(const RowJob<T>& job, std::int64_t row, const DenseSettings& settings,
                              double* y) {
    const SparseRows<T>& data = job.data;
    const T* v = data.values + data.begin(row);
    const std::int32_t* indices = data.indices + data.begin(row);
    const std::int64_t length = data.length(row), n_cols = job.fixed.n_rows;
    const int rank = job.fixed.rank;
    const double* const c = job.fixed.c;
    const double l2 = job.fixed.l2;
    T* const x = job.x_row(row);
    double total = 0, residual = 0;
    for (std::int64_t i = 0; i < length; ++i)
        total += v[i];
    for (int k = 0; k < rank; ++k) {
        const T* column = job.fixed.row(k);
        for (int newton = 0; newton < settings.max_newton; ++newton) {
            double S = 0, h = 0;
            for (std::int64_t i = 0; i < length; ++i) {
                const double t = column[indices[i]] / y[indices[i]];
                S += v[i] * t;
                h += v[i] * t * t;
            }
            const double g = c[k] + l2 * x[k] - S;
            const double curvature = h + l2;
            if (newton == 0 && length > 0)
                residual = max_of(residual, entry_residual(x[k], c[k], g, total));
            const T before = x[k];
            // Where nothing curves f (no nonzero under column k) it is linear: go to the floor.
            const double target = curvature > 0 ? before - g / curvature : settings.floor;
            if (!__builtin_isfinite(target))
                break;
            x[k] = static_cast<T>(max_of(settings.floor, target));
            // In double: a float difference would lose the floor, and P would part from the
            // factors.
            const double delta = static_cast<double>(x[k]) - static_cast<double>(before);
            // The true product cannot fall below floor^2; a difference of floats can.
            const double least = settings.floor * settings.floor;
#pragma omp simd
            for (std::int64_t j = 0; j < n_cols; ++j)
                y[j] = max_of(y[j] + delta * column[j], least);
            if (absolute(delta) < settings.relative_change * before)
                break;
        }
    }
    return residual;
}

// Columns of P that are copied out, updated as rows and copied back together: a cache line's worth.
constexpr std::int64_t columns_per_block = 16;

inline void copy_columns_out(const double* P, std::int64_t n_rows, std::int64_t n_cols,
                             std::int64_t first, std::int64_t count, double* block) {
    for (std::int64_t i = 0; i < n_rows; ++i)
        for (std::int64_t j = 0; j < count; ++j)
            block[j * n_rows + i] = P[i * n_cols + first + j];
}

inline void copy_columns_back(double* P, std::int64_t n_rows, std::int64_t n_cols,
                              std::int64_t first, std::int64_t count, const double* block) {
    for (std::int64_t i = 0; i < n_rows; ++i)
        for (std::int64_t j = 0; j < count; ++j)
            P[i * n_cols + first + j] = block[j * n_rows + i];
}

} // namespace klnmf
