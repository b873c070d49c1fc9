#include "component_passes.hpp"

#include <algorithm>
#include <cmath>

#include "parallel.hpp"

namespace klnmf {
namespace {

// Multiply-adds that a division or a logarithm, with what it is made from, is worth.
constexpr std::int64_t work_of_nonzero = 16;
constexpr std::int64_t rows_per_task = 16;

// The entry at a nonzero of one component's profiles, as the product over the modes but `left_out`.
template <int Others>
KLNMF_INLINE double profile_at(const SampledNonzeros& x, const double* h, std::int64_t i,
                               int left_out, double product) {
    if constexpr (Others == 1)
        return left_out == 0 ? product : product * h[x.indices[i]];
    for (int q = 0; q < x.n_others; ++q)
        if (q != left_out)
            product *= h[x.indices[q * x.nnz + i]];
    return product;
}

template <int Others>
void products_of_rows(const SampledNonzeros& x, const double* W, const double* H, int rank,
                      std::int64_t begin, std::int64_t end, double* model) {
    constexpr int lanes = 4; // nonzeros side by side: each has a sum to wait for
    for (std::int64_t row = begin; row < end; ++row) {
        const double* w = W + row * rank;
        for (std::int64_t i = x.indptr[row]; i < x.indptr[row + 1]; i += lanes) {
            const double* h[lanes];
            double sums[lanes] = {};
            const std::int64_t last = x.indptr[row + 1] - 1;
            for (int l = 0; l < lanes; ++l)
                h[l] = H + static_cast<std::int64_t>(x.indices[std::min(i + l, last)]) * rank;
            for (int k = 0; k < rank; ++k)
                for (int l = 0; l < lanes; ++l) {
                    double entry = h[l][k];
                    if constexpr (Others > 1)
                        for (int q = 1; q < x.n_others; ++q)
                            entry *= H[x.indices[q * x.nnz + std::min(i + l, last)] *
                                           static_cast<std::int64_t>(rank) +
                                       k];
                    sums[l] += w[k] * entry;
                }
            for (int l = 0; l < lanes && i + l <= last; ++l)
                model[i + l] = sums[l];
        }
    }
}

template <int Others>
void ratios_of_component(const SampledNonzeros& x, const double* u, const double* h, int mode,
                         std::int64_t begin, std::int64_t end, double* sums) {
    for (std::int64_t row = begin; row < end; ++row) {
        double of_row = 0;
        for (std::int64_t i = x.indptr[row]; i < x.indptr[row + 1]; ++i) {
            const double ratio = x.v[i] / (x.y[i] + profile_at<Others>(x, h, i, -1, u[row]));
            if (mode < 0)
                of_row += profile_at<Others>(x, h, i, -1, ratio);
            else
                sums[x.indices[mode * x.nnz + i]] +=
                    profile_at<Others>(x, h, i, mode, ratio) * u[row];
        }
        if (mode < 0)
            sums[row] = of_row;
    }
}

} // namespace

void products_at_nonzeros(const SampledNonzeros& x, const double* W, const double* H, int rank,
                          int n_threads, double* model) {
    for_each_range(
        x.n_rows, usable_threads(n_threads, x.nnz * rank),
        [&](std::int64_t begin, std::int64_t end, int) {
            if (x.n_others == 1)
                products_of_rows<1>(x, W, H, rank, begin, end, model);
            else
                products_of_rows<2>(x, W, H, rank, begin, end, model);
        },
        rows_per_task);
}

void change_of_logarithms(const SampledNonzeros& x, const double* w, const double* h,
                          std::int64_t n_columns, int n_terms, double smallest, int n_threads,
                          double* terms) {
    for_each_range(
        x.n_rows, usable_threads(n_threads, x.nnz * work_of_nonzero),
        [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t row = begin; row < end; ++row)
                for (std::int64_t i = x.indptr[row]; i < x.indptr[row + 1]; ++i) {
                    double change = 0;
                    for (int t = 0; t < n_terms; ++t)
                        change +=
                            w[t * x.n_rows + row] * profile_at<2>(x, h + t * n_columns, i, -1, 1.0);
                    terms[i] = x.v[i] * std::log1p(std::max(change / x.y[i], smallest));
                }
        },
        rows_per_task);
}

void ratio_sums(const SampledNonzeros& x, const double* u, const double* h, std::int64_t n_columns,
                int n_components, int mode, int n_threads, double* sums) {
    const std::int64_t n_sums = mode < 0 ? x.n_rows : n_columns;
    const int n_used = usable_threads(n_threads, n_components * x.nnz * work_of_nonzero);
    const auto of_rows = [&](std::int64_t t, std::int64_t begin, std::int64_t end) {
        const double *own_u = u + t * x.n_rows, *own_h = h + t * n_columns;
        if (x.n_others == 1)
            ratios_of_component<1>(x, own_u, own_h, mode, begin, end, sums + t * n_sums);
        else
            ratios_of_component<2>(x, own_u, own_h, mode, begin, end, sums + t * n_sums);
    };
    if (mode < 0) {
        for_each_range(
            x.n_rows, n_used,
            [&](std::int64_t begin, std::int64_t end, int) {
                for (std::int64_t t = 0; t < n_components; ++t)
                    of_rows(t, begin, end);
            },
            rows_per_task);
        return;
    }
    // The columns of a mode are summed over the rows in order: components are shared out, not rows.
    for_each_range(
        n_components, n_used,
        [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t t = begin; t < end; ++t) {
                std::fill(sums + t * n_sums, sums + (t + 1) * n_sums, 0.0);
                of_rows(t, 0, x.n_rows);
            }
        },
        1);
}

void products_of_roots(const double* F, std::int64_t n_rows, int rank, const double* sums,
                       int n_threads, double* roots, double* products) {
    std::fill(products, products + static_cast<std::int64_t>(rank) * rank, 0.0);
    const int n_used = usable_threads(n_threads, n_rows * rank * rank / 2);
    for_each_range(
        n_rows, n_used,
        [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t i = begin; i < end; ++i)
                for (int k = 0; k < rank; ++k)
                    roots[i * rank + k] = std::sqrt(F[i * rank + k] / sums[k]);
        },
        16 * rows_per_task);
    for_each_range(
        rank, n_used,
        [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t i = 0; i < n_rows; ++i)
                for (std::int64_t j = begin; j < end; ++j)
                    for (std::int64_t k = j; k < rank; ++k)
                        products[j * rank + k] += roots[i * rank + j] * roots[i * rank + k];
        },
        2);
    for (int j = 0; j < rank; ++j)
        for (int k = 0; k < j; ++k)
            products[j * rank + k] = products[k * rank + j];
}

} // namespace klnmf
