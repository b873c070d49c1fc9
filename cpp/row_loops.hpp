// The loops over rows of every rule. row_loops_*.cpp instantiate them, one file for every type of
// factors, because compiling for several instruction sets takes long. No two of those files may
// contain the same KLNMF_CLONES function: each depends on that type.
#pragma once

#include <limits>
#include <vector>

#include "guarded_range.hpp"
#include "kernels.hpp"
#include "newton_range.hpp"
#include "padded_job.hpp"
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
KLNMF_CLONES void multiplicative_range(const RowJob<T>& job, int relaxed, const RowTask& task,
                                       RowScratch<T>& scratch) {
    scratch.products_kept = 0; // a pass makes its own
    for (std::int64_t i = task.begin; i < task.end; ++i) {
        if (settle_empty_row(job, i)) {
            job.report(i, {0, 0, 0});
            continue;
        }
        const Row<T> row = load_row(job, i, fixed_side_of_row(job, i, scratch), scratch);
        job.report(i, multiplicative_row(row, relaxed, scratch));
        store_row(job, i, scratch);
    }
}

template <class T>
KLNMF_CLONES void paper_range(const RowJob<T>& job, const PaperSettings& settings,
                              const RowTask& task, RowScratch<T>& scratch) {
    for (std::int64_t i = task.begin; i < task.end; ++i) {
        job.kkt[i] = 0;
        if (settle_empty_row(job, i))
            continue;
        job.kkt[i] = paper_row(load_row(job, i, job.fixed, scratch), settings, scratch);
        store_row(job, i, scratch);
    }
}

// `y` points at the first of these rows of the dense product; the others follow.
template <class T>
KLNMF_CLONES void dense_range(const RowJob<T>& job, const DenseSettings& settings,
                              const RowTask& task, double* y) {
    for (std::int64_t i = task.begin; i < task.end; ++i)
        job.kkt[i] = dense_row(job, i, settings, y + (i - task.begin) * job.fixed.n_rows);
}

template <class T>
KLNMF_CLONES void evaluate_range(const RowJob<T>& job, const T* x, bool want_residual,
                                 const RowTask& task, RowScratch<T>& scratch) {
    for (std::int64_t i = task.begin; i < task.end; ++i)
        job.report(i, evaluate_row(job, i, x + i * job.fixed.rank, want_residual, scratch));
}

// The values of a tensor's rows at their new x, see RowOutcome. That of a row with a nonzero which
// nothing covers is infinite already.
template <class T>
KLNMF_CLONES void value_range(const RowJob<T>& job, const RowTask& task, RowScratch<T>& scratch) {
    for (std::int64_t i = task.begin; i < task.end; ++i)
        if (job.value[i] < std::numeric_limits<double>::infinity())
            job.value[i] = evaluate_row(job, i, job.x_row(i), false, scratch).value;
}

// Scratch of a rule's own, for each thread. All memory is reserved here: a task must not allocate.
template <class Scratch, class T>
std::vector<Scratch> one_for_each_thread(const RowJob<T>& job) {
    std::vector<Scratch> all;
    all.reserve(job.n_threads); // a copy would not keep what is reserved
    for (int t = 0; t < job.n_threads; ++t)
        all.emplace_back(job);
    return all;
}

template <class T>
void guarded_rows(const RowJob<T>& unpadded, const GuardedSettings& settings) {
    const PaddedJob<T> job(unpadded, unpadded.data.longest_row());
    auto batches = one_for_each_thread<BatchScratch<T>>(*job);
    const bool of_products = settings.want_value && (*job).fixed.has_products();
    GuardedSettings steps = settings;
    steps.want_value = settings.want_value && !of_products;
    for_each_task(*job, [&](const RowTask& task, RowScratch<T>& scratch, int thread) {
        guarded_range(*job, steps, task, scratch, batches[thread]);
        if (of_products)
            value_range(*job, task, scratch);
    });
}

template <class T>
void newton_rows(const RowJob<T>& unpadded, const NewtonSettings& settings) {
    const PaddedJob<T> job(unpadded, unpadded.data.longest_row());
    auto batches = one_for_each_thread<NewtonScratch<T>>(*job);
    // Few tasks: the more rows there are to choose from, the more alike are those of a batch.
    constexpr int tasks_per_thread = 8;
    for_each_task(
        *job,
        [&](const RowTask& task, RowScratch<T>& scratch, int thread) {
            newton_range(*job, settings, task, scratch, batches[thread]);
        },
        (*job).n_threads == 1 ? 1 : tasks_per_thread);
}

template <class T>
void multiplicative_rows(const RowJob<T>& unpadded, int relaxed) {
    const PaddedJob<T> job(unpadded, unpadded.data.longest_row());
    for_each_task(*job, [&](const RowTask& task, RowScratch<T>& scratch, int) {
        multiplicative_range(*job, relaxed, task, scratch);
    });
}

template <class T>
void paper_rows(const RowJob<T>& unpadded, const PaperSettings& settings) {
    const PaddedJob<T> job(unpadded, unpadded.data.longest_row());
    for_each_task(*job, [&](const RowTask& task, RowScratch<T>& scratch, int) {
        paper_range(*job, settings, task, scratch);
    });
}

template <class T>
void dense_rows(const RowJob<T>& job, const DenseSettings& settings, double* P, bool by_columns) {
    const std::int64_t n_rows = job.data.n_rows, n_cols = job.fixed.n_rows;
    const int threads = usable_threads(job.n_threads, n_rows * n_cols * job.fixed.rank);
    // The rows of this mode may be the columns of P, which then has as many rows as this mode has
    // columns.
    std::vector<double> blocks(by_columns ? threads * columns_per_block * n_cols : 0);
    for_each_range(
        n_rows, threads,
        [&](std::int64_t begin, std::int64_t end, int thread) {
            if (!by_columns)
                return dense_range(job, settings, {begin, end}, P + begin * n_cols);
            double* block = blocks.data() + thread * columns_per_block * n_cols;
            copy_columns_out(P, n_cols, n_rows, begin, end - begin, block);
            dense_range(job, settings, {begin, end}, block);
            copy_columns_back(P, n_cols, n_rows, begin, end - begin, block);
        },
        columns_per_block);
}

template <class T>
void evaluate_rows(const RowJob<T>& unpadded, const T* x, bool want_residual) {
    const PaddedJob<T> job(unpadded, 0); // values are read where they are
    for_each_task(*job, [&](const RowTask& task, RowScratch<T>& scratch, int) {
        evaluate_range(*job, x, want_residual, task, scratch);
    });
}

#define KLNMF_INSTANTIATE(T)                                                                       \
    template void guarded_rows(const RowJob<T>&, const GuardedSettings&);                          \
    template void newton_rows(const RowJob<T>&, const NewtonSettings&);                            \
    template void multiplicative_rows(const RowJob<T>&, int);                                      \
    template void evaluate_rows(const RowJob<T>&, const T*, bool);                                 \
    template void paper_rows(const RowJob<T>&, const PaperSettings&);                              \
    template void dense_rows(const RowJob<T>&, const DenseSettings&, double*, bool);

} // namespace klnmf
