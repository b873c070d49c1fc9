#include "parallel.hpp"

namespace klnmf {

int usable_threads(int requested, std::int64_t work) {
    // About 50 microseconds: what waking a thread may cost on a busy machine.
    constexpr std::int64_t work_per_thread = 100'000;
    const std::int64_t worthwhile = 1 + work / work_per_thread;
    return worthwhile < requested ? static_cast<int>(worthwhile) : requested;
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
