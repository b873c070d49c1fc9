// Loops over the entries of one factor.
#include <algorithm>
#include <vector>

#include "kernels.hpp"
#include "parallel.hpp"
#include "row_tasks.hpp"

namespace klnmf {
namespace {

template <int power, class T>
KLNMF_CLONES void column_powers_range(const T* factor, std::int64_t begin, std::int64_t end,
                                      int rank, double* sums) {
    for (std::int64_t i = begin; i < end; ++i)
        for (int k = 0; k < rank; ++k) {
            const double entry = factor[i * rank + k];
            sums[k] += power == 1 ? entry : entry * entry;
        }
}

template <class T>
KLNMF_CLONES void extrapolate_range(const T* newest, const T* previous, std::int64_t begin,
                                    std::int64_t end, T weight, T keep, T* target) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
        const T moved = newest[i] + weight * (newest[i] - previous[i]);
        const T least = keep * newest[i];
        target[i] = moved > least ? moved : least;
    }
}

// Sums of the entries (power 1) or of their squares (power 2), each block of rows on one thread.
template <int power, class T>
void column_powers(const T* factor, std::int64_t n_rows, int rank, int n_threads, double* sums) {
    const std::int64_t n_blocks = (n_rows + rows_per_sum - 1) / rows_per_sum;
    std::vector<double> partial(static_cast<std::size_t>(n_blocks) * rank, 0.0);
    for_each_range(
        n_rows, usable_threads(n_threads, n_rows * rank),
        [&](std::int64_t begin, std::int64_t end, int) {
            column_powers_range<power>(factor, begin, end, rank,
                                       partial.data() + begin / rows_per_sum * rank);
        },
        rows_per_sum);
    std::fill(sums, sums + rank, 0.0);
    for (std::int64_t b = 0; b < n_blocks; ++b)
        for (int k = 0; k < rank; ++k)
            sums[k] += partial[b * rank + k];
}

} // namespace

template <class T>
void column_sums(const T* factor, std::int64_t n_rows, int rank, int n_threads, double* sums) {
    column_powers<1>(factor, n_rows, rank, n_threads, sums);
}

template <class T>
void column_squares(const T* factor, std::int64_t n_rows, int rank, int n_threads,
                    double* squares) {
    column_powers<2>(factor, n_rows, rank, n_threads, squares);
}

double blocked_sum(const double* values, std::int64_t n_values) {
    double total = 0;
    for (std::int64_t begin = 0; begin < n_values; begin += rows_per_sum) {
        double block = 0;
        const std::int64_t end = std::min(begin + rows_per_sum, n_values);
        for (std::int64_t i = begin; i < end; ++i)
            block += values[i];
        total += block;
    }
    return total;
}

template <class T>
void extrapolate(const T* newest, const T* previous, std::int64_t size, double weight, double keep,
                 int n_threads, T* target) {
    constexpr std::int64_t entries_per_task = 1 << 16;
    for_each_range(
        size, usable_threads(n_threads, size),
        [&](std::int64_t begin, std::int64_t end, int) {
            extrapolate_range(newest, previous, begin, end, static_cast<T>(weight),
                              static_cast<T>(keep), target);
        },
        entries_per_task);
}

#define KLNMF_INSTANTIATE(T)                                                                       \
    template void column_sums(const T*, std::int64_t, int, int, double*);                          \
    template void column_squares(const T*, std::int64_t, int, int, double*);                       \
    template void extrapolate(const T*, const T*, std::int64_t, double, double, int, T*);

KLNMF_INSTANTIATE(float)
KLNMF_INSTANTIATE(double)

} // namespace klnmf
