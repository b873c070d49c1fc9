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

int usable_threads(int requested, std::int64_t work) {
    // About 50 microseconds: what waking and joining a thread may cost on a busy machine.
    constexpr std::int64_t work_per_thread = 100'000;
    const std::int64_t worthwhile = 1 + work / work_per_thread;
    const int threads = worthwhile < requested ? static_cast<int>(worthwhile) : requested;
    if (!has_openmp() || forked_after_threads || threads <= 1)
        return 1;
    threads_were_started = true;
    return threads;
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

const char* instruction_set() {
#ifdef KLNMF_HAS_CLONES
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4"))
        return "x86-64-v4 (AVX-512)";
    return __builtin_cpu_supports("x86-64-v3") ? "x86-64-v3 (AVX2)" : "x86-64 (SSE2)";
#else
    return "the compiler's choice";
#endif
}

} // namespace klnmf
