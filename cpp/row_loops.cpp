// The loops over rows of every rule, on all threads. What they do in a task is in row_kernels.hpp.
#include <vector>

#include "dense_descent.hpp"
#include "guarded_range.hpp"
#include "kernel_set.hpp"
#include "kernels.hpp"
#include "newton_range.hpp"
#include "padded_job.hpp"
#include "parallel.hpp"
#include "row_scratch.hpp"
#include "row_tasks.hpp"

namespace klnmf {
namespace {

template <class T>
std::int64_t longest_row(const RowJob<T>& job) {
    return kernels().passes->longest_difference(job.data.indptr, job.data.n_rows);
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

} // namespace

template <class T>
void guarded_rows(const RowJob<T>& unpadded, const GuardedSettings& settings) {
    const PaddedJob<T> job(unpadded, longest_row(unpadded));
    auto batches = one_for_each_thread<BatchScratch<T>>(*job);
    const bool of_products = settings.want_value && (*job).fixed.has_products();
    GuardedSettings steps = settings;
    steps.want_value = settings.want_value && !of_products;
    for_each_task(*job, [&](const RowTask& task, RowScratch<T>& scratch, int thread) {
        row_kernels<T>().guarded(*job, steps, task, scratch, batches[thread]);
        if (of_products)
            row_kernels<T>().value(*job, task, scratch);
    });
}

template <class T>
void newton_rows(const RowJob<T>& unpadded, const NewtonSettings& settings) {
    const PaddedJob<T> job(unpadded, longest_row(unpadded));
    auto batches = one_for_each_thread<NewtonScratch<T>>(*job);
    // Few tasks: the more rows there are to choose from, the more alike are those of a batch.
    constexpr int tasks_per_thread = 8;
    for_each_task(
        *job,
        [&](const RowTask& task, RowScratch<T>& scratch, int thread) {
            row_kernels<T>().newton(*job, settings, task, scratch, batches[thread]);
        },
        (*job).n_threads == 1 ? 1 : tasks_per_thread);
}

template <class T>
void multiplicative_rows(const RowJob<T>& unpadded, int relaxed) {
    const PaddedJob<T> job(unpadded, longest_row(unpadded));
    for_each_task(*job, [&](const RowTask& task, RowScratch<T>& scratch, int) {
        row_kernels<T>().multiplicative(*job, relaxed, task, scratch);
    });
}

template <class T>
void paper_rows(const RowJob<T>& unpadded, const PaperSettings& settings) {
    const PaddedJob<T> job(unpadded, longest_row(unpadded));
    for_each_task(*job, [&](const RowTask& task, RowScratch<T>& scratch, int) {
        row_kernels<T>().paper(*job, settings, task, scratch);
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
                return row_kernels<T>().dense(job, settings, {begin, end}, P + begin * n_cols);
            double* block = blocks.data() + thread * columns_per_block * n_cols;
            copy_columns_out(P, n_cols, n_rows, begin, end - begin, block);
            row_kernels<T>().dense(job, settings, {begin, end}, block);
            copy_columns_back(P, n_cols, n_rows, begin, end - begin, block);
        },
        columns_per_block);
}

template <class T>
void evaluate_rows(const RowJob<T>& unpadded, const T* x, bool want_residual) {
    const PaddedJob<T> job(unpadded, 0); // values are read where they are
    for_each_task(*job, [&](const RowTask& task, RowScratch<T>& scratch, int) {
        row_kernels<T>().evaluate(*job, x, want_residual, task, scratch);
    });
}

#define KLNMF_INSTANTIATE(T)                                                                       \
    template void guarded_rows(const RowJob<T>&, const GuardedSettings&);                          \
    template void newton_rows(const RowJob<T>&, const NewtonSettings&);                            \
    template void multiplicative_rows(const RowJob<T>&, int);                                      \
    template void evaluate_rows(const RowJob<T>&, const T*, bool);                                 \
    template void paper_rows(const RowJob<T>&, const PaperSettings&);                              \
    template void dense_rows(const RowJob<T>&, const DenseSettings&, double*, bool);

KLNMF_INSTANTIATE(float)
KLNMF_INSTANTIATE(double)

} // namespace klnmf
