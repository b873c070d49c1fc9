// Threads that wait between kernels without keeping a core busy.
//
// OpenMP's threads spin while they wait, for as long as OMP_WAIT_POLICY and the run time like; on a
// machine with other work to do that takes the cores from the threads that have something to do.
// These spin for some microseconds, since the next kernel often comes at once, then let others have
// their core while they look, for some milliseconds at most, and then sleep.
#pragma once

#include <cstdint>

namespace klnmf {

// Calls run(context, task, thread) once for every task in [0, n_tasks), on the calling thread and
// on at most n_threads - 1 others. `thread` is below n_threads; no two tasks have the same one at a
// time. Returns when all calls have returned. `run` must not throw. Threads that are not there when
// the work is (the machine is busy, or it gives no more threads) are not waited for. May be called
// from several threads at once, and in a child of fork: both have threads of their own.
void run_tasks(std::int64_t n_tasks, int n_threads,
               void (*run)(const void* context, std::int64_t task, int thread),
               const void* context);

} // namespace klnmf
