// The fixed factor of a half-step, laid out for the loops over rows.
#pragma once

#include <cstdint>
#include <vector>

#include "aligned_array.hpp"
#include "kernels.hpp"
#include "parallel.hpp"
#include "sparse_view.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

// What a core keeps close at hand, on the machines of these years.
constexpr std::int64_t own_cache_bytes = 1 << 20;

// A with its rows padded with zeros to whole vectors, for the time of a half-step (where they
// already are whole vectors, A itself), its slopes in T, and which components are held.
template <class T>
class PaddedFactor {
public:
    PaddedFactor(const FixedFactor<T>& fixed, std::int64_t n_rows, const std::uint8_t* frozen,
                 int n_threads)
        : fixed_(fixed) {
        constexpr int lanes = Lanes<T>::count;
        const std::int64_t stride = (fixed.rank + lanes - 1) / lanes * lanes;
        slopes_.resize(3 * stride, T(0));
        for (int k = 0; k < fixed.rank; ++k) {
            if (frozen && frozen[k]) {
                slopes_[2 * stride + k] = 1;
                continue;
            }
            slopes_[k] = static_cast<T>(fixed.c[k]);
            slopes_[stride + k] = fixed.c[k] > 0 ? static_cast<T>(1 / fixed.c[k]) : T(0);
        }
        fixed_.fetch_ahead =
            n_rows * stride * static_cast<std::int64_t>(sizeof(T)) > own_cache_bytes;
        fixed_.slope = slopes_.data();
        fixed_.inverse_slope = slopes_.data() + stride;
        fixed_.held = frozen ? slopes_.data() + 2 * stride : nullptr;
        if (stride == fixed.stride)
            return;
        memory_ = AlignedArray<T>(n_rows * stride);
        T* padded = memory_.data();
        for_each_range(
            n_rows, n_threads,
            [&](std::int64_t begin, std::int64_t end, int) {
                for (std::int64_t i = begin; i < end; ++i) {
                    const T* row = fixed.row(i);
                    T* target = padded + i * stride;
                    for (int k = 0; k < fixed.rank; ++k)
                        target[k] = row[k];
                    for (std::int64_t k = fixed.rank; k < stride; ++k)
                        target[k] = 0;
                }
            },
            rows_per_sum);
        fixed_.A = padded;
        fixed_.stride = stride;
    }

    const FixedFactor<T>& operator*() const { return fixed_; }

private:
    FixedFactor<T> fixed_;
    std::vector<T> slopes_;
    AlignedArray<T> memory_;
};

} // namespace klnmf
