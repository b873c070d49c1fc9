// The kernels of kernel_set.hpp over rows: each rule over the rows of one task.
#pragma once

#include "dense_descent.hpp"
#include "guarded_range.hpp"
#include "inlined.hpp"
#include "kernel_set.hpp"
#include "newton_range.hpp"
#include "row_constraints.hpp"
#include "row_evaluation.hpp"
#include "row_problem.hpp"
#include "row_scratch.hpp"
#include "row_tasks.hpp"
#include "rule_multiplicative.hpp"
#include "rule_paper.hpp"

namespace klnmf {

KLNMF_DECLARE_KERNELS(KLNMF_SET)

template <class T>
KLNMF_OWN void multiplicative_range(const RowJob<T>& job, int relaxed, const RowTask& task,
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
KLNMF_OWN void paper_range(const RowJob<T>& job, const PaperSettings& settings, const RowTask& task,
                           RowScratch<T>& scratch) {
    for (std::int64_t i = task.begin; i < task.end; ++i) {
        job.kkt[i] = 0;
        if (settle_empty_row(job, i))
            continue;
        job.kkt[i] = paper_row(load_row(job, i, job.fixed, scratch), settings, scratch);
        store_row(job, i, scratch);
    }
}

template <class T>
KLNMF_OWN void dense_range(const RowJob<T>& job, const DenseSettings& settings, const RowTask& task,
                           double* y) {
    for (std::int64_t i = task.begin; i < task.end; ++i)
        job.kkt[i] = dense_row(job, i, settings, y + (i - task.begin) * job.fixed.n_rows);
}

template <class T>
KLNMF_OWN void evaluate_range(const RowJob<T>& job, const T* x, bool want_residual,
                              const RowTask& task, RowScratch<T>& scratch) {
    for (std::int64_t i = task.begin; i < task.end; ++i)
        job.report(i, evaluate_row(job, i, x + i * job.fixed.rank, want_residual, scratch));
}

// The value of a row with a nonzero which nothing covers is infinite already.
template <class T>
KLNMF_OWN void value_range(const RowJob<T>& job, const RowTask& task, RowScratch<T>& scratch) {
    for (std::int64_t i = task.begin; i < task.end; ++i)
        if (job.value[i] < Limits<double>::infinity)
            job.value[i] = evaluate_row(job, i, job.x_row(i), false, scratch).value;
}

template <class T>
static constexpr RowKernels<T> row_kernels_of_set = {
    guarded_range<T>, newton_range<T>,   multiplicative_range<T>, paper_range<T>,
    dense_range<T>,   evaluate_range<T>, value_range<T>};

} // namespace klnmf
