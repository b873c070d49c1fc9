// The only place that knows about threads. Every kernel is a loop over independent rows; a thread
// writes only to the rows it was handed and to its own scratch, so that the number of threads can
// never change a result.
#pragma once

#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

// Compiles a function once per instruction set; one is picked when the library is loaded. What it
// calls must be inlined into it (KLNMF_INLINE) or carry this mark too, or it would stay at the
// baseline set.
#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(__GNUC__) &&        \
    !defined(__clang__) && !defined(KLNMF_NO_CLONES)
#define KLNMF_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#define KLNMF_HAS_CLONES 1
#else
#define KLNMF_CLONES
#endif

#if defined(__GNUC__) || defined(__clang__)
#define KLNMF_INLINE inline __attribute__((always_inline))
#else
#define KLNMF_INLINE inline
#endif

namespace klnmf {

// Threads a kernel should really use for so many multiply-adds of work: never more than pay for
// being woken, and 1 in a process forked after OpenMP threads were started, because GNU's run time
// would wait there for threads that the fork did not copy.
int usable_threads(int requested, std::int64_t work);

// What the OpenMP run time would use by itself (OMP_NUM_THREADS and threadpoolctl's limits
// included).
int default_threads();

bool has_openmp();

// The instruction set that KLNMF_CLONES functions run with on this machine.
const char* instruction_set();

// Calls body(begin, end, thread) for ranges of rows that cover [0, n_rows), on `n_threads` threads,
// `task` rows at a time. The body calls a KLNMF_CLONES function: the parallel region itself is
// compiled once, because compilers outline it before they clone.
template <class Body>
void for_each_range(std::int64_t n_rows, int n_threads, Body body, std::int64_t task) {
    const std::int64_t n_tasks = (n_rows + task - 1) / task;
    const auto run = [&](std::int64_t t, int thread) {
        const std::int64_t begin = t * task;
        body(begin, begin + task < n_rows ? begin + task : n_rows, thread);
    };
#ifdef _OPENMP
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (std::int64_t t = 0; t < n_tasks; ++t)
        run(t, omp_get_thread_num());
#else
    (void)n_threads;
    for (std::int64_t t = 0; t < n_tasks; ++t)
        run(t, 0);
#endif
}

} // namespace klnmf
