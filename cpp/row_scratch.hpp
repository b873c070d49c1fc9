// Working memory of one thread: what a row problem needs besides the data and the factors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace klnmf {

// Rows are padded to a multiple of this many entries (v = 0, A = 0, y = 1: they add nothing), so
// that vector loops need no tail.
constexpr std::int64_t row_padding = 8;

// Nonzeros of a row up to which its slice of A is gathered whole; longer rows are gathered a few
// components at a time, so that the scratch stays at threads x tile x rank.
constexpr std::int64_t tile = 16384;

// Components up to which a long row moves by steps of Newton's method, and the nonzeros that those
// look at at a time.
constexpr int most_newton_components = 64;
constexpr std::int64_t newton_chunk = 256;

// Nonzeros whose terms are summed in the type of the factors; sums over more are sums of such
// pieces, in double, so that rounding does not grow with the length of a row.
constexpr std::int64_t piece = 2048;

inline std::int64_t padded(std::int64_t length) {
    return (length + row_padding - 1) / row_padding * row_padding;
}

template <class T>
struct RowScratch {
    T* v;        // the row's values
    T* y;        // (A x)_i at the row's nonzeros
    T* columns;  // gathered columns of A, one after the other, each `padded(length)` long
    T* x;        // the row's x, padded with 0 to the stride of A
    T* S;        // S_k = sum_i v_i A_ik / y_i for every component, padded likewise
    T* y_before; // y, x and S where a relaxed step started
    T* x_before;
    T* S_before;
    double* S_exact;   // S in double, likewise
    double* own_c;     // slopes of a row that has its own, see row_constraints.hpp
    T* own_slope;      // the same in T, and 1 / c after them, each padded to the stride
    T* newton_columns; // columns of a chunk, scaled, and the model of a Newton step
    double* newton_model;
    std::int32_t* active; // the components a half-step visits, in the order of the visits
    std::int32_t* slots;  // where the column of active[j] stands among the gathered ones
    std::int64_t stride;

    // How many columns of a row with `length` nonzeros are gathered at once: at least one, and
    // whatever other rows there are, because sums depend on it.
    std::int64_t columns_at_once(std::int64_t length) const {
        return std::max<std::int64_t>(tile * stride / padded(length), 1);
    }
};

// One allocation for all threads, made before they start: running out of memory is then an
// exception in the calling thread and nothing else.
template <class T>
class ScratchPool {
public:
    ScratchPool(int n_threads, std::int64_t longest_row, int rank, std::int64_t stride) {
        const std::int64_t length = padded(std::max<std::int64_t>(longest_row, 1));
        const std::int64_t capacity = std::max(std::min(length, tile) * stride, length);
        const std::int64_t newton = std::min(rank, most_newton_components);
        const std::size_t per_thread =
            align(length * sizeof(T)) * 3 + align(capacity * sizeof(T)) +
            align(stride * sizeof(T)) * 4 + align(stride * sizeof(double)) * 2 +
            align(2 * stride * sizeof(T)) + align(rank * sizeof(std::int32_t)) * 2 +
            align(newton * newton_chunk * sizeof(T)) +
            align(newton * (newton + 4) * sizeof(double));
        memory_.reset(static_cast<std::byte*>(
            ::operator new(per_thread * n_threads, std::align_val_t{alignment})));
        std::byte* next = memory_.get();
        const auto take = [&next](std::size_t bytes) {
            std::byte* start = next;
            next += align(bytes);
            return start;
        };
        threads_.resize(n_threads);
        for (RowScratch<T>& scratch : threads_) {
            scratch.v = reinterpret_cast<T*>(take(length * sizeof(T)));
            scratch.y = reinterpret_cast<T*>(take(length * sizeof(T)));
            scratch.columns = reinterpret_cast<T*>(take(capacity * sizeof(T)));
            scratch.y_before = reinterpret_cast<T*>(take(length * sizeof(T)));
            scratch.x_before = reinterpret_cast<T*>(take(stride * sizeof(T)));
            scratch.S_before = reinterpret_cast<T*>(take(stride * sizeof(T)));
            scratch.x = reinterpret_cast<T*>(take(stride * sizeof(T)));
            scratch.S = reinterpret_cast<T*>(take(stride * sizeof(T)));
            std::fill(scratch.x, scratch.x + stride, T(0));
            scratch.S_exact = reinterpret_cast<double*>(take(stride * sizeof(double)));
            scratch.own_c = reinterpret_cast<double*>(take(stride * sizeof(double)));
            scratch.own_slope = reinterpret_cast<T*>(take(2 * stride * sizeof(T)));
            scratch.newton_columns = reinterpret_cast<T*>(take(newton * newton_chunk * sizeof(T)));
            scratch.newton_model =
                reinterpret_cast<double*>(take(newton * (newton + 4) * sizeof(double)));
            scratch.active = reinterpret_cast<std::int32_t*>(take(rank * sizeof(std::int32_t)));
            scratch.slots = reinterpret_cast<std::int32_t*>(take(rank * sizeof(std::int32_t)));
            scratch.stride = stride;
        }
    }

    RowScratch<T>& operator[](int thread) { return threads_[thread]; }

private:
    // A cache line: no two threads share one.
    static constexpr std::size_t alignment = 64;
    static constexpr std::size_t align(std::size_t bytes) {
        return (bytes + alignment - 1) / alignment * alignment;
    }
    struct Release {
        void operator()(std::byte* memory) const {
            ::operator delete(memory, std::align_val_t{alignment});
        }
    };

    std::unique_ptr<std::byte, Release> memory_;
    std::vector<RowScratch<T>> threads_;
};

} // namespace klnmf
