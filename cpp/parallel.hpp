// Loops over rows on several threads. Every kernel is such a loop over independent rows; a thread
// writes only to the rows it was handed and to its own scratch, so that the number of threads can
// never change a result.
#pragma once

#include <cstdint>

#include "inlined.hpp"
#include "thread_pool.hpp"

namespace klnmf {

// Threads that so many multiply-adds of work are worth: never more than pay for being woken.
int usable_threads(int requested, std::int64_t work);

// Calls body(begin, end, thread) for ranges of rows that cover [0, n_rows), on `n_threads` threads,
// `task` rows at a time. The body calls a kernel (see kernel_set.hpp): the loop around it is
// compiled once.
template <class Body>
void for_each_range(std::int64_t n_rows, int n_threads, Body body, std::int64_t task) {
    struct Loop {
        std::int64_t n_rows, task;
        Body& body;
    };
    const Loop loop{n_rows, task, body};
    run_tasks((n_rows + task - 1) / task, n_threads,
              [](const void* context, std::int64_t t, int thread) {
                  const Loop& rows = *static_cast<const Loop*>(context);
                  const std::int64_t begin = t * rows.task, end = begin + rows.task;
                  rows.body(begin, end < rows.n_rows ? end : rows.n_rows, thread);
              },
              &loop);
}

} // namespace klnmf
