// Memory for vectors: it starts at a cache line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace klnmf {

// So many numbers, not initialised; made before threads start, because it may throw.
template <class T>
class AlignedArray {
public:
    AlignedArray() = default;
    explicit AlignedArray(std::int64_t size)
        : memory_(static_cast<T*>(::operator new(size * sizeof(T), alignment))) {}

    T* data() { return memory_.get(); }
    const T* data() const { return memory_.get(); }

private:
    static constexpr std::align_val_t alignment{64};
    struct Release {
        void operator()(T* memory) const { ::operator delete(memory, alignment); }
    };
    std::unique_ptr<T, Release> memory_;
};

} // namespace klnmf
