#include "parallel.hpp"

#include <atomic>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define KLNMF_HAS_FORK 1
#endif

namespace klnmf {
namespace {

std::atomic<bool> threads_were_started{false};
std::atomic<bool> forked_after_threads{false};

#ifdef KLNMF_HAS_FORK
void in_forked_child() {
    if (threads_were_started)
        forked_after_threads = true;
}
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, in_forked_child);
#endif

} // namespace

int usable_threads(int requested) {
    if (!has_openmp() || forked_after_threads || requested <= 1)
        return 1;
    threads_were_started = true;
    return requested;
}

int default_threads() {
#ifdef _OPENMP
    // Another library may have started the threads that the fork lost, so ask nothing of the run
    // time beyond its setting.
    return omp_get_max_threads();
#else
    return 1;
#endif
}

bool has_openmp() {
#ifdef _OPENMP
    return true;
#else
    return false;
#endif
}

} // namespace klnmf
