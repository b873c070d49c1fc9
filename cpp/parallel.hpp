// Loops over rows on several threads. Every kernel is such a loop over independent rows; a thread
// writes only to the rows it was handed and to its own scratch, so that the number of threads can
// never change a result.
#pragma once

#include <cstdint>

#include "thread_pool.hpp"

// Compiles a function once per instruction set; one is picked when the library is loaded. What it
// calls must be inlined into it (KLNMF_INLINE) or carry this mark too, or it would stay at the
// baseline set. A large function with several callers carries it: every inlined copy takes seconds
// to compile. It takes and returns vectors by reference, because the way in which they are passed
// by value depends on the instruction set.
#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(__GNUC__) &&        \
    !defined(__clang__) && !defined(KLNMF_NO_CLONES)
#define KLNMF_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#define KLNMF_HAS_CLONES 1
#else
#define KLNMF_CLONES
#endif

#if defined(__GNUC__) || defined(__clang__)
#define KLNMF_INLINE inline __attribute__((always_inline))
#define KLNMF_NOINLINE __attribute__((noinline))
#else
#define KLNMF_INLINE inline
#define KLNMF_NOINLINE
#endif

namespace klnmf {

// Threads that so many multiply-adds of work are worth: never more than pay for being woken.
int usable_threads(int requested, std::int64_t work);

// The instruction set that KLNMF_CLONES functions run with on this machine.
const char* instruction_set();

// Calls body(begin, end, thread) for ranges of rows that cover [0, n_rows), on `n_threads` threads,
// `task` rows at a time. The body calls a KLNMF_CLONES function: the loop around it is compiled
// once.
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
