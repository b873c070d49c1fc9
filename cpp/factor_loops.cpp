// Loops over the entries of one factor.
#include <algorithm>
#include <vector>

#include "kernel_set.hpp"
#include "kernels.hpp"
#include "parallel.hpp"

namespace klnmf {
namespace {

// Sixteen sums side by side, whatever the instruction set: one addition need not wait for the
// other.
double sum_of_block(const double* values, std::int64_t size) {
    constexpr int lanes = 16;
    double sums[lanes] = {};
    std::int64_t i = 0;
    for (; i + lanes <= size; i += lanes)
        for (int l = 0; l < lanes; ++l)
            sums[l] += values[i + l];
    for (int l = 0; i < size; ++i, ++l)
        sums[l] += values[i];
    for (int width = lanes / 2; width > 0; width /= 2)
        for (int l = 0; l < width; ++l)
            sums[l] += sums[l + width];
    return sums[0];
}

} // namespace

template <class T>
void column_powers(const T* factor, int power, std::int64_t n_rows, int rank, int n_threads,
                   double* sums) {
    const auto range =
        power == 1 ? value_kernels<T>().column_sums : value_kernels<T>().column_squares;
    const std::int64_t n_blocks = (n_rows + rows_per_sum - 1) / rows_per_sum;
    std::vector<double> partial(static_cast<std::size_t>(n_blocks) * rank, 0.0);
    for_each_range( // each block of rows on one thread
        n_rows, usable_threads(n_threads, n_rows * rank),
        [&](std::int64_t begin, std::int64_t end, int) {
            range(factor, begin, end, rank, partial.data() + begin / rows_per_sum * rank);
        },
        rows_per_sum);
    std::fill(sums, sums + rank, 0.0);
    for (std::int64_t b = 0; b < n_blocks; ++b)
        for (int k = 0; k < rank; ++k)
            sums[k] += partial[b * rank + k];
}

double blocked_sum(const double* values, std::int64_t n_values) {
    double total = 0;
    for (std::int64_t begin = 0; begin < n_values; begin += rows_per_sum)
        total += sum_of_block(values + begin, std::min(rows_per_sum, n_values - begin));
    return total;
}

template <class T>
std::int64_t count_zeros(const T* values, std::int64_t size, int n_threads) {
    constexpr std::int64_t entries_per_task = 1 << 16;
    std::vector<std::int64_t> counts((size + entries_per_task - 1) / entries_per_task);
    for_each_range(
        size, usable_threads(n_threads, size),
        [&](std::int64_t begin, std::int64_t end, int) {
            value_kernels<T>().zeros(values, begin, end, counts[begin / entries_per_task]);
        },
        entries_per_task);
    std::int64_t total = 0;
    for (const std::int64_t count : counts)
        total += count;
    return total;
}

template <class T>
void extrapolate(const T* newest, const T* previous, std::int64_t size, double weight, double keep,
                 int n_threads, T* target) {
    constexpr std::int64_t entries_per_task = 1 << 16;
    for_each_range(
        size, usable_threads(n_threads, size),
        [&](std::int64_t begin, std::int64_t end, int) {
            value_kernels<T>().extrapolate(newest, previous, begin, end, static_cast<T>(weight),
                                           static_cast<T>(keep), target);
        },
        entries_per_task);
}

#define KLNMF_INSTANTIATE(T)                                                                       \
    template void column_powers(const T*, int, std::int64_t, int, int, double*);                   \
    template std::int64_t count_zeros(const T*, std::int64_t, int);                                \
    template void extrapolate(const T*, const T*, std::int64_t, double, double, int, T*);

KLNMF_INSTANTIATE(float)
KLNMF_INSTANTIATE(double)

} // namespace klnmf
