#include "component_passes.hpp"

#include <algorithm>
#include <cmath>

#include "kernel_set.hpp"
#include "parallel.hpp"

namespace klnmf {
namespace {

// Multiply-adds that a division or a logarithm, with what it is made from, is worth.
constexpr std::int64_t work_of_nonzero = 16;
constexpr std::int64_t rows_per_task = 16;

const ComponentKernels& component_kernels(const SampledNonzeros& x) {
    return kernels().components[x.n_others < 3 ? x.n_others : 0];
}

} // namespace

void products_at_nonzeros(const SampledNonzeros& x, const double* W, const double* H, int rank,
                          int n_threads, double* model) {
    for_each_range(
        x.n_rows, usable_threads(n_threads, x.nnz * rank),
        [&](std::int64_t begin, std::int64_t end, int) {
            component_kernels(x).products(x, W, H, rank, begin, end, model);
        },
        rows_per_task);
}

void change_of_logarithms(const SampledNonzeros& x, const double* w, const double* h,
                          std::int64_t n_columns, int n_terms, double smallest, int n_threads,
                          double* terms) {
    for_each_range(
        x.n_rows, usable_threads(n_threads, x.nnz * work_of_nonzero),
        [&](std::int64_t begin, std::int64_t end, int) {
            component_kernels(x).change(x, w, h, n_columns, n_terms, smallest, begin, end, terms);
        },
        rows_per_task);
}

void ratio_sums(const SampledNonzeros& x, const double* u, const double* h, std::int64_t n_columns,
                int n_components, int mode, int n_threads, double* sums) {
    const std::int64_t n_sums = mode < 0 ? x.n_rows : n_columns;
    const int n_used = usable_threads(n_threads, n_components * x.nnz * work_of_nonzero);
    const auto of_rows = [&](std::int64_t t, std::int64_t begin, std::int64_t end) {
        component_kernels(x).ratios(x, u + t * x.n_rows, h + t * n_columns, mode, begin, end,
                                    sums + t * n_sums);
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
