// Which rows a thread is handed at a time: about as many nonzeros in every task, so that rows of
// very uneven length keep all threads busy. How the rows are divided changes no result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel.hpp"
#include "row_job.hpp"
#include "row_scratch.hpp"

namespace klnmf {

// Rows in a task at most: enough to find rows of one length for a batch.
constexpr std::int64_t rows_per_task = 512;

// Rows of a task that wait for a batch. A batch costs what its most costly row costs: rows whose
// keys say that they cost about the same are put side by side.
class WaitingRows {
public:
    // For keys below `n_keys`. All memory is reserved here: a task must not allocate.
    explicit WaitingRows(std::int64_t n_keys) : ends_(n_keys + 1) {
        rows_.reserve(rows_per_task);
        sorted_.reserve(rows_per_task);
        keys_.reserve(rows_per_task);
    }

    void clear() {
        rows_.clear();
        keys_.clear();
    }

    void add(std::int64_t row, std::int64_t key) {
        rows_.push_back(row);
        keys_.push_back(static_cast<std::int32_t>(key));
    }

    // The rows in the order of their keys; those with the same keep theirs.
    std::span<std::int64_t> sorted() {
        if (rows_.empty())
            return rows_;
        std::fill(ends_.begin(), ends_.end(), 0);
        for (const std::int32_t key : keys_)
            ++ends_[key + 1];
        for (std::size_t key = 1; key < ends_.size(); ++key)
            ends_[key] += ends_[key - 1];
        sorted_.resize(rows_.size());
        for (std::size_t j = 0; j < rows_.size(); ++j)
            sorted_[ends_[keys_[j]]++] = rows_[j];
        return sorted_;
    }

private:
    std::vector<std::int64_t> rows_, sorted_;
    std::vector<std::int32_t> keys_, ends_;
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
