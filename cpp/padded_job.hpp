// A half-step as the loops over rows see it: its fixed factor laid out for vectors.
#pragma once

#include <cstdint>
#include <vector>

#include "aligned_array.hpp"
#include "kernels.hpp"
#include "parallel.hpp"
#include "row_job.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

// What a core keeps close at hand, on the machines of these years.
constexpr std::int64_t own_cache_bytes = 1 << 20;

// A job whose A has rows padded with zeros to whole vectors, for the time of a half-step (where
// they already are whole vectors, A itself), its slopes in T, and which components are held; for as
// many threads as it is worth. `longest_row` is how many nonzeros of a row the scratch must hold.
template <class T>
class PaddedJob {
public:
    PaddedJob(const RowJob<T>& job, std::int64_t longest_row) : job_(job) {
        constexpr int lanes = Lanes<T>::count;
        const FixedSide<T>& unpadded = job.fixed;
        const std::uint8_t* const frozen = job.constraints.frozen;
        const int rank = unpadded.rank;
        const std::int64_t stride = (rank + lanes - 1) / lanes * lanes;
        job_.longest_row = longest_row;
        job_.n_threads = usable_threads(job.n_threads, job.data.nnz() * rank);
        slopes_.resize(3 * stride, T(0));
        for (int k = 0; k < rank; ++k) {
            if (frozen && frozen[k]) {
                slopes_[2 * stride + k] = 1;
                continue;
            }
            slopes_[k] = static_cast<T>(unpadded.c[k]);
            slopes_[stride + k] = unpadded.c[k] > 0 ? static_cast<T>(1 / unpadded.c[k]) : T(0);
        }
        FixedSide<T>& fixed = job_.fixed;
        fixed.fetch_ahead =
            fixed.n_rows * stride * static_cast<std::int64_t>(sizeof(T)) > own_cache_bytes;
        fixed.slope = slopes_.data();
        fixed.inverse_slope = slopes_.data() + stride;
        fixed.held = frozen ? slopes_.data() + 2 * stride : nullptr;
        if (stride == fixed.stride)
            return;
        memory_ = AlignedArray<T>(fixed.n_rows * stride);
        T* padded = memory_.data();
        for_each_range(
            fixed.n_rows, job_.n_threads,
            [&](std::int64_t begin, std::int64_t end, int) {
                for (std::int64_t i = begin; i < end; ++i) {
                    const T* row = unpadded.row(i);
                    T* target = padded + i * stride;
                    for (int k = 0; k < rank; ++k)
                        target[k] = row[k];
                    for (std::int64_t k = rank; k < stride; ++k)
                        target[k] = 0;
                }
            },
            rows_per_sum);
        fixed.A = padded;
        fixed.stride = stride;
    }

    const RowJob<T>& operator*() const { return job_; }

private:
    RowJob<T> job_;
    std::vector<T> slopes_;
    AlignedArray<T> memory_;
};

} // namespace klnmf
