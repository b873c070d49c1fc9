// Memory for vectors: it starts at a cache line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "parallel.hpp"
#include "vector_lanes.hpp"

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

// So many vectors; lane l of each belongs to the l-th row of a batch.
template <class T>
class LaneArray : public AlignedArray<T> {
public:
    using V = typename Lanes<T>::Vector;
    static constexpr int lanes = Lanes<T>::count;

    LaneArray() = default;
    explicit LaneArray(std::int64_t size) : AlignedArray<T>(size * lanes) {}

    KLNMF_INLINE V operator[](std::int64_t i) const { return load(this->data() + i * lanes); }
    KLNMF_INLINE void set(std::int64_t i, V vector) { store(this->data() + i * lanes, vector); }
    KLNMF_INLINE T& at(std::int64_t i, int lane) { return this->data()[i * lanes + lane]; }
};

} // namespace klnmf
