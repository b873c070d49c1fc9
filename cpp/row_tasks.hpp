// Which rows a thread is handed at a time: about as many nonzeros in every task, so that rows of
// very uneven length keep all threads busy. How the rows are divided changes no result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel.hpp"
#include "sparse_view.hpp"

namespace klnmf {

// Rows in a task at most: enough to find rows of one length for a batch.
constexpr std::int64_t rows_per_task = 512;

// Memory for sorting the rows of a task.
struct SortScratch {
    // For keys below `n_keys`; a task must not allocate.
    void reserve(std::int64_t n_keys) {
        sorted.reserve(rows_per_task);
        keys.reserve(rows_per_task);
        ends.reserve(n_keys + 1);
    }

    std::vector<std::int64_t> sorted;
    std::vector<std::int32_t> keys, ends;
};

// Sorts rows by scratch.keys (a key for each of them), keeping the order of those with the same.
inline void sort_by_keys(std::int64_t n_keys, SortScratch& scratch,
                         std::vector<std::int64_t>& rows) {
    scratch.ends.assign(n_keys + 1, 0);
    for (const std::int32_t key : scratch.keys)
        ++scratch.ends[key + 1];
    for (std::int64_t key = 0; key < n_keys; ++key)
        scratch.ends[key + 1] += scratch.ends[key];
    scratch.sorted.resize(rows.size());
    for (std::size_t j = 0; j < rows.size(); ++j)
        scratch.sorted[scratch.ends[scratch.keys[j]]++] = rows[j];
    rows.swap(scratch.sorted);
}

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

// Calls body(begin, end, thread) for ranges of rows that cover all rows of the data.
template <class T, class Body>
void for_each_task(const SparseRows<T>& data, int n_threads, Body body, int tasks_per_thread = 32) {
    const std::vector<RowTask> tasks = row_tasks(data, n_threads, tasks_per_thread);
    for_each_range(
        static_cast<std::int64_t>(tasks.size()), n_threads,
        [&](std::int64_t first, std::int64_t last, int thread) {
            for (std::int64_t t = first; t < last; ++t)
                body(tasks[t].begin, tasks[t].end, thread);
        },
        1);
}

} // namespace klnmf
