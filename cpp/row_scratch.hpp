// Working memory of one thread: what a row problem needs besides the data and the factors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "aligned_array.hpp"
#include "inlined.hpp"
#include "row_job.hpp"

namespace klnmf {

// Rows are padded to a multiple of this many entries (v = 0, A = 0, y = 1: they add nothing), so
// that vector loops need no tail.
constexpr std::int64_t row_padding = 8;

// Nonzeros of a row up to which its slice of A is gathered whole; longer rows are gathered a few
// components at a time, so that the scratch stays at threads x tile x rank.
constexpr std::int64_t tile = 16384;

// Products of the rows of a tensor are made once for all that reads them in a half-step where those
// of a row take up to so many bytes: more would not stay in a core's own cache.
constexpr std::int64_t most_bytes_kept = 1 << 19;

// Components up to which a long row moves by steps of Newton's method, and the nonzeros that those
// look at at a time.
constexpr int most_newton_components = 64;
constexpr std::int64_t newton_chunk = 256;

// Nonzeros whose terms are summed in the type of the factors; sums over more are sums of such
// pieces, in double, so that rounding does not grow with the length of a row.
constexpr std::int64_t piece = 2048;

KLNMF_INLINE std::int64_t padded(std::int64_t length) {
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
    double* S_exact;            // S in double, likewise
    FixedSide<T>* own;          // the fixed side of a row that has its own, see row_constraints.hpp
    double* own_c;              // its slopes,
    T* own_slope;               // the same in T, and 1 / c after them, each padded to the stride
    T* products;                // of a tensor: rows of A of a few nonzeros
    std::int64_t products_kept; // nonzeros of a row up to which they all stay there
    T* newton_columns;          // columns of a chunk, scaled, and the model of a Newton step
    double* newton_model;
    std::int32_t* active; // the components a half-step visits, in the order of the visits
    std::int32_t* slots;  // where the column of active[j] stands among the gathered ones
    std::int64_t stride;

    // How many columns of a row with `length` nonzeros are gathered at once: at least one, and
    // whatever other rows there are, because sums depend on it.
    KLNMF_INLINE std::int64_t columns_at_once(std::int64_t length) const {
        return max_of<std::int64_t>(tile * stride / padded(length), 1);
    }
};

// One allocation for all threads, made before they start: running out of memory is then an
// exception in the calling thread and nothing else.
template <class T>
class ScratchPool {
public:
    explicit ScratchPool(const RowJob<T>& job) {
        RowScratch<T> measured;
        const std::size_t per_thread = lay_out(measured, nullptr, job);
        memory_ = AlignedArray<std::byte>(per_thread * job.n_threads);
        threads_.resize(job.n_threads);
        std::byte* next = memory_.data();
        for (RowScratch<T>& scratch : threads_) {
            next += lay_out(scratch, next, job);
            std::fill(scratch.x, scratch.x + scratch.stride, T(0));
        }
    }

    RowScratch<T>& operator[](int thread) { return threads_[thread]; }

private:
    // Sets the arrays of a thread, one after the other from `memory` on (null: none yet); returns
    // how many bytes they take.
    static std::size_t lay_out(RowScratch<T>& scratch, std::byte* memory, const RowJob<T>& job) {
        std::size_t used = 0;
        const auto take = [&](auto*& array, std::int64_t size) {
            std::byte* const start = memory ? memory + used : nullptr;
            array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(start);
            used += align(size * sizeof *array);
        };
        const std::int64_t stride = job.fixed.stride, rank = job.fixed.rank;
        const std::int64_t length = padded(std::max<std::int64_t>(job.longest_row, 1));
        const std::int64_t newton = std::min<std::int64_t>(rank, most_newton_components);
        take(scratch.v, length);
        take(scratch.y, length);
        take(scratch.columns, std::max(std::min(length, tile) * stride, length));
        take(scratch.y_before, length);
        take(scratch.x_before, stride);
        take(scratch.S_before, stride);
        take(scratch.x, stride);
        take(scratch.S, stride);
        take(scratch.S_exact, stride);
        take(scratch.own, 1);
        take(scratch.own_c, stride);
        take(scratch.own_slope, 2 * stride);
        const std::int64_t kept = most_bytes_kept / (row_padding * stride * sizeof(T));
        scratch.products_kept =
            job.fixed.has_products()
                ? std::min(length, row_padding * std::max<std::int64_t>(kept, 1))
                : 0;
        take(scratch.products, scratch.products_kept * stride);
        take(scratch.newton_columns, newton * newton_chunk);
        take(scratch.newton_model, newton * (newton + 4));
        take(scratch.active, rank);
        take(scratch.slots, rank);
        scratch.stride = stride;
        return used;
    }

    // A cache line: no two threads share one.
    static constexpr std::size_t alignment = 64;
    static constexpr std::size_t align(std::size_t bytes) {
        return (bytes + alignment - 1) / alignment * alignment;
    }

    AlignedArray<std::byte> memory_;
    std::vector<RowScratch<T>> threads_;
};

} // namespace klnmf
