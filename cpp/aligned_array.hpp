// Memory for vectors: it starts at a cache line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "inlined.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

// So many numbers, not initialised; made before threads start, because it may throw.
template <class T>
class AlignedArray {
public:
    AlignedArray() = default;
    explicit AlignedArray(std::int64_t size)
        : memory_(static_cast<T*>(::operator new(size * sizeof(T), alignment))) {}

    AlignedArray(AlignedArray&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
    AlignedArray& operator=(AlignedArray&& other) noexcept {
        std::swap(memory_, other.memory_);
        return *this;
    }
    ~AlignedArray() { ::operator delete(memory_, alignment); }

    static AlignedArray zeros(std::int64_t size) {
        AlignedArray array(size);
        std::fill(array.memory_, array.memory_ + size, T(0));
        return array;
    }

    KLNMF_INLINE T* data() { return memory_; }
    KLNMF_INLINE const T* data() const { return memory_; }

private:
    static constexpr std::align_val_t alignment{64};
    T* memory_ = nullptr;
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
