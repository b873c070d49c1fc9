// Which rows a thread is handed at a time: about as many nonzeros in every task, so that rows of
// very uneven length keep all threads busy. How the rows are divided changes no result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "aligned_array.hpp"
#include "inlined.hpp"
#include "parallel.hpp"
#include "row_job.hpp"
#include "row_scratch.hpp"

namespace klnmf {

// Rows in a task at most: enough to find rows of one length for a batch.
constexpr std::int64_t rows_per_task = 512;

// Numbers of some rows.
struct RowList {
    std::int64_t* rows;
    std::int64_t count;

    // Those from `first` on, `most` of them at most.
    KLNMF_INLINE RowList part(std::int64_t first, std::int64_t most) const {
        return {rows + first, min_of(most, count - first)};
    }
};

// Rows of a task that wait for a batch. A batch costs what its most costly row costs: rows whose
// keys say that they cost about the same are put side by side.
class WaitingRows {
public:
    // For keys below `n_keys`. All memory is reserved here: a task must not allocate.
    explicit WaitingRows(std::int64_t n_keys)
        : n_keys_(n_keys), rows_(rows_per_task), sorted_(rows_per_task), keys_(rows_per_task),
          ends_(n_keys + 1) {}

    KLNMF_INLINE void clear() { count_ = 0; }

    KLNMF_INLINE void add(std::int64_t row, std::int64_t key) {
        rows_.data()[count_] = row;
        keys_.data()[count_++] = static_cast<std::int32_t>(key);
    }

    // The rows in the order of their keys; those with the same keep theirs.
    KLNMF_INLINE RowList sorted() {
        std::int32_t *const keys = keys_.data(), *const ends = ends_.data();
        for (std::int64_t key = 0; count_ > 0 && key <= n_keys_; ++key)
            ends[key] = 0;
        for (std::int64_t j = 0; j < count_; ++j)
            ++ends[keys[j] + 1];
        for (std::int64_t key = 1; count_ > 0 && key <= n_keys_; ++key)
            ends[key] += ends[key - 1];
        for (std::int64_t j = 0; j < count_; ++j)
            sorted_.data()[ends[keys[j]]++] = rows_.data()[j];
        return {sorted_.data(), count_};
    }

private:
    std::int64_t n_keys_, count_ = 0;
    AlignedArray<std::int64_t> rows_, sorted_;
    AlignedArray<std::int32_t> keys_, ends_;
};

// Rows begin, begin + 1, ..., end - 1.
struct RowTask {
    std::int64_t begin, end;
};

template <class T>
std::vector<RowTask> row_tasks(const SparseRows<T>& data, int n_threads, int tasks_per_thread) {
    // Many tasks for each thread, so that the last ones end together, but none too small to be
    // worth the shared counter.
    const std::int64_t share =
        std::max<std::int64_t>(2048, data.nnz() / (tasks_per_thread * n_threads));
    std::vector<RowTask> tasks;
    for (std::int64_t begin = 0; begin < data.n_rows;) {
        // The last row whose end is within the share, but at least one and at most rows_per_task.
        const std::int64_t most = std::min(begin + rows_per_task, data.n_rows);
        const std::int64_t* first_beyond = std::upper_bound(
            data.indptr + begin + 2, data.indptr + most + 1, data.indptr[begin] + share);
        const std::int64_t end = first_beyond - data.indptr - 1;
        tasks.push_back({begin, end});
        begin = end;
    }
    // Rows that are long by themselves come first: nobody should start one when the rest is done.
    std::stable_partition(tasks.begin(), tasks.end(), [&](const RowTask& task) {
        return data.indptr[task.end] - data.indptr[task.begin] > share;
    });
    return tasks;
}

// Calls body(task, scratch, thread) for tasks that cover all rows of a padded job; the scratch is
// the thread's own.
template <class T, class Body>
void for_each_task(const RowJob<T>& job, Body body, int tasks_per_thread = 32) {
    ScratchPool<T> pool(job);
    const std::vector<RowTask> tasks = row_tasks(job.data, job.n_threads, tasks_per_thread);
    for_each_range(
        static_cast<std::int64_t>(tasks.size()), job.n_threads,
        [&](std::int64_t t, std::int64_t, int thread) { body(tasks[t], pool[thread], thread); }, 1);
}

} // namespace klnmf
