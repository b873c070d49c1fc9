// The loops over rows of every rule. row_loops_*.cpp instantiate them, one file for every type of
// factors, because compiling for several instruction sets takes long. No two of those files may
// contain the same KLNMF_CLONES function: each depends on that type.
#pragma once

#include <algorithm>
#include <vector>

#include "guarded_range.hpp"
#include "kernels.hpp"
#include "newton_range.hpp"
#include "objective.hpp"
#include "padded_factor.hpp"
#include "parallel.hpp"
#include "row_constraints.hpp"
#include "row_evaluation.hpp"
#include "row_problem.hpp"
#include "row_scratch.hpp"
#include "row_tasks.hpp"
#include "rule_multiplicative.hpp"

namespace klnmf {

// The loops below run over the rows of one task; everything in them is inlined and compiled for
// each instruction set.

template <class T>
KLNMF_CLONES void multiplicative_range(const SparseRows<T>& data, const FixedFactor<T>& fixed,
                                       double l2, std::int64_t n_cols,
                                       const RowConstraints& constraints, int relaxed,
                                       std::int64_t begin, std::int64_t end, RowScratch<T>& scratch,
                                       T* x, double* kkt, double* gap) {
    for (std::int64_t i = begin; i < end; ++i) {
        T* x_row = x + i * fixed.rank;
        kkt[i] = gap[i] = 0;
        if (settle_empty_row(data.length(i), fixed, x_row))
            continue;
        const auto [own, own_l2] = factor_of_row(constraints, fixed, l2, n_cols, i, scratch);
        const RowOutcome outcome =
            multiplicative_row(load_row(data, i, own, own_l2, x_row, scratch), relaxed, scratch);
        kkt[i] = outcome.kkt;
        gap[i] = outcome.gap;
        store_row(scratch, fixed.rank, x_row);
    }
}

template <class T>
KLNMF_CLONES void paper_range(const SparseRows<T>& data, const FixedFactor<T>& fixed, double l2,
                              const PaperSettings& settings, std::int64_t begin, std::int64_t end,
                              RowScratch<T>& scratch, T* x, double* kkt) {
    for (std::int64_t i = begin; i < end; ++i) {
        T* x_row = x + i * fixed.rank;
        kkt[i] = 0;
        if (settle_empty_row(data.length(i), fixed, x_row))
            continue;
        kkt[i] = paper_row(load_row(data, i, fixed, l2, x_row, scratch), settings, scratch).kkt;
        store_row(scratch, fixed.rank, x_row);
    }
}

// `y` points at the dense product's row `begin`; the rows follow each other.
template <class T>
KLNMF_CLONES void dense_range(const SparseRows<T>& data, std::int64_t n_cols, const T* columns,
                              int rank, const double* c, double l2, const DenseSettings& settings,
                              std::int64_t begin, std::int64_t end, T* x, double* y, double* kkt) {
    for (std::int64_t i = begin; i < end; ++i)
        kkt[i] = dense_row(data, i, n_cols, columns, rank, c, l2, x + i * rank,
                           y + (i - begin) * n_cols, settings);
}

template <class T>
KLNMF_CLONES void evaluate_range(const SparseRows<T>& data, const FixedFactor<T>& fixed, double l2,
                                 std::int64_t n_cols, const RowConstraints& constraints,
                                 bool want_residual, std::int64_t begin, std::int64_t end,
                                 RowScratch<T>& scratch, const T* x, double* value, double* kkt,
                                 double* gap) {
    for (std::int64_t i = begin; i < end; ++i) {
        const auto [own, own_l2] = factor_of_row(constraints, fixed, l2, n_cols, i, scratch);
        const RowOutcome outcome = evaluate_row(data, i, own, x + i * fixed.rank, own_l2,
                                                want_residual, constraints.frozen, scratch);
        value[i] = outcome.value;
        kkt[i] = outcome.kkt;
        gap[i] = outcome.gap;
    }
}

// Calls body(padded A, begin, end, scratch) for ranges of rows that cover all of them.
template <class T, class Body>
void for_each_range_padded(const SparseRows<T>& data, const FixedFactor<T>& unpadded,
                           std::int64_t n_cols, const std::uint8_t* frozen, int n_threads,
                           Body body) {
    const int threads = usable_threads(n_threads, data.nnz() * unpadded.rank);
    const PaddedFactor<T> padded(unpadded, n_cols, frozen, threads);
    ScratchPool<T> pool(threads, data.longest_row(), unpadded.rank, (*padded).stride);
    for_each_task(data, threads, [&](std::int64_t begin, std::int64_t end, int thread) {
        body(*padded, begin, end, pool[thread]);
    });
}

template <class T>
void guarded_rows(const SparseRows<T>& data, const FixedFactor<T>& unpadded, double l2,
                  std::int64_t n_cols, const RowConstraints& constraints,
                  const GuardedSettings& settings, int n_threads, T* x, double* value, double* kkt,
                  double* gap) {
    const int threads = usable_threads(n_threads, data.nnz() * unpadded.rank);
    const PaddedFactor<T> padded(unpadded, n_cols, constraints.frozen, threads);
    const std::int64_t longest = data.longest_row();
    ScratchPool<T> pool(threads, longest, unpadded.rank, (*padded).stride);
    std::vector<BatchScratch<T>> batches;
    batches.reserve(threads); // a copy would not keep what is reserved
    for (int t = 0; t < threads; ++t)
        batches.emplace_back(longest, (*padded).stride);
    for_each_task(data, threads, [&](std::int64_t begin, std::int64_t end, int thread) {
        guarded_range(data, *padded, l2, n_cols, constraints, settings, begin, end, pool[thread],
                      batches[thread], x, value, kkt, gap);
    });
}

template <class T>
void newton_rows(const SparseRows<T>& data, const FixedFactor<T>& unpadded, double l2,
                 std::int64_t n_cols, const RowConstraints& constraints,
                 const NewtonSettings& settings, int n_threads, T* x, double* kkt, double* gap) {
    const int threads = usable_threads(n_threads, data.nnz() * unpadded.rank);
    const PaddedFactor<T> padded(unpadded, n_cols, constraints.frozen, threads);
    const std::int64_t longest = data.longest_row();
    ScratchPool<T> pool(threads, longest, unpadded.rank, (*padded).stride);
    std::vector<NewtonScratch<T>> batches;
    batches.reserve(threads); // a copy would not keep what is reserved
    for (int t = 0; t < threads; ++t)
        batches.emplace_back(longest, unpadded.rank, (*padded).stride,
                             suits_newton(unpadded.rank, l2));
    // Few tasks: the more rows there are to choose from, the more alike are those of a batch.
    constexpr int tasks_per_thread = 8;
    for_each_task(
        data, threads,
        [&](std::int64_t begin, std::int64_t end, int thread) {
            newton_range(data, *padded, l2, n_cols, constraints, settings, begin, end, pool[thread],
                         batches[thread], x, kkt, gap);
        },
        threads == 1 ? 1 : tasks_per_thread);
}

template <class T>
void multiplicative_rows(const SparseRows<T>& data, const FixedFactor<T>& unpadded, double l2,
                         std::int64_t n_cols, const RowConstraints& constraints, int relaxed,
                         int n_threads, T* x, double* kkt, double* gap) {
    for_each_range_padded(data, unpadded, n_cols, constraints.frozen, n_threads,
                          [&](const auto& fixed, auto begin, auto end, auto& scratch) {
                              multiplicative_range(data, fixed, l2, n_cols, constraints, relaxed,
                                                   begin, end, scratch, x, kkt, gap);
                          });
}

template <class T>
void paper_rows(const SparseRows<T>& data, const FixedFactor<T>& unpadded, double l2,
                std::int64_t n_cols, const PaperSettings& settings, int n_threads, T* x,
                double* kkt) {
    for_each_range_padded(data, unpadded, n_cols, nullptr, n_threads,
                          [&](const auto& fixed, auto begin, auto end, auto& scratch) {
                              paper_range(data, fixed, l2, settings, begin, end, scratch, x, kkt);
                          });
}

template <class T>
void dense_rows(const SparseRows<T>& data, std::int64_t n_cols, const T* columns, int rank,
                const double* c, double l2, const DenseSettings& settings, bool by_columns,
                int n_threads, T* x, double* P, double* kkt) {
    const int threads = usable_threads(n_threads, data.n_rows * n_cols * rank);
    if (!by_columns) {
        for_each_range(
            data.n_rows, threads,
            [&](std::int64_t begin, std::int64_t end, int) {
                dense_range(data, n_cols, columns, rank, c, l2, settings, begin, end, x,
                            P + begin * n_cols, kkt);
            },
            columns_per_block);
        return;
    }
    // The rows of this mode are the columns of P, and P has as many rows as this mode has columns.
    std::vector<double> blocks(static_cast<std::size_t>(threads) * columns_per_block * n_cols);
    for_each_range(
        data.n_rows, threads,
        [&](std::int64_t begin, std::int64_t end, int thread) {
            double* block = blocks.data() + thread * columns_per_block * n_cols;
            copy_columns_out(P, n_cols, data.n_rows, begin, end - begin, block);
            dense_range(data, n_cols, columns, rank, c, l2, settings, begin, end, x, block, kkt);
            copy_columns_back(P, n_cols, data.n_rows, begin, end - begin, block);
        },
        columns_per_block);
}

template <class T>
void evaluate_rows(const SparseRows<T>& data, const FixedFactor<T>& unpadded, double l2,
                   std::int64_t n_cols, const RowConstraints& constraints, bool want_residual,
                   int n_threads, const T* x, double* value, double* kkt, double* gap) {
    const int threads = usable_threads(n_threads, data.nnz() * unpadded.rank);
    const PaddedFactor<T> padded(unpadded, n_cols, nullptr, threads);
    ScratchPool<T> pool(threads, 0, unpadded.rank, (*padded).stride);
    for_each_task(data, threads, [&](std::int64_t begin, std::int64_t end, int thread) {
        evaluate_range(data, *padded, l2, n_cols, constraints, want_residual, begin, end,
                       pool[thread], x, value, kkt, gap);
    });
}

#define KLNMF_INSTANTIATE(T)                                                                       \
    template void guarded_rows(const SparseRows<T>&, const FixedFactor<T>&, double, std::int64_t,  \
                               const RowConstraints&, const GuardedSettings&, int, T*, double*,    \
                               double*, double*);                                                  \
    template void newton_rows(const SparseRows<T>&, const FixedFactor<T>&, double, std::int64_t,   \
                              const RowConstraints&, const NewtonSettings&, int, T*, double*,      \
                              double*);                                                            \
    template void multiplicative_rows(const SparseRows<T>&, const FixedFactor<T>&, double,         \
                                      std::int64_t, const RowConstraints&, int, int, T*, double*,  \
                                      double*);                                                    \
    template void evaluate_rows(const SparseRows<T>&, const FixedFactor<T>&, double, std::int64_t, \
                                const RowConstraints&, bool, int, const T*, double*, double*,      \
                                double*);                                                          \
    template void paper_rows(const SparseRows<T>&, const FixedFactor<T>&, double, std::int64_t,    \
                             const PaperSettings&, int, T*, double*);                              \
    template void dense_rows(const SparseRows<T>&, std::int64_t, const T*, int, const double*,     \
                             double, const DenseSettings&, bool, int, T*, double*, double*);

} // namespace klnmf
