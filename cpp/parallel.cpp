#include "parallel.hpp"

namespace klnmf {

int usable_threads(int requested, std::int64_t work) {
    // About 50 microseconds: what waking a thread may cost on a busy machine.
    constexpr std::int64_t work_per_thread = 100'000;
    const std::int64_t worthwhile = 1 + work / work_per_thread;
    return worthwhile < requested ? static_cast<int>(worthwhile) : requested;
}

} // namespace klnmf
