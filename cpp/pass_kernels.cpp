// The kernels of kernel_set.hpp over the values of a factor or of X.
#include <cstdint>

#include "data_passes.hpp"
#include "inlined.hpp"
#include "kernel_set.hpp"
#include "objective.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

KLNMF_DECLARE_KERNELS(KLNMF_SET)

template <int power, class T>
KLNMF_OWN void column_powers_range(const T* factor, std::int64_t begin, std::int64_t end, int rank,
                                   double* sums) {
    for (std::int64_t i = begin; i < end; ++i)
        for (int k = 0; k < rank; ++k) {
            const double entry = factor[i * rank + k];
            sums[k] += power == 1 ? entry : entry * entry;
        }
}

template <class T>
KLNMF_OWN void extrapolate_range(const T* newest, const T* previous, std::int64_t begin,
                                 std::int64_t end, T weight, T keep, T* target) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
        const T moved = newest[i] + weight * (newest[i] - previous[i]);
        const T least = keep * newest[i];
        target[i] = moved > least ? moved : least;
    }
}

template <class T>
KLNMF_OWN void zeros_of_range(const T* values, std::int64_t begin, std::int64_t end,
                              std::int64_t& count) {
    std::int32_t zeros = 0;
#pragma omp simd reduction(+ : zeros)
    for (std::int64_t i = begin; i < end; ++i)
        zeros += values[i] == 0 ? 1 : 0;
    count = zeros;
}

template <class T>
KLNMF_OWN void facts_of_block(const T* values, std::int64_t begin, std::int64_t end,
                              ValueFacts& facts) {
    T smallest = Limits<T>::max, largest = Limits<T>::lowest;
    double total = 0;
    int n_bad = 0;
#pragma omp simd reduction(min : smallest) reduction(max : largest) reduction(+ : total, n_bad)
    for (std::int64_t i = begin; i < end; ++i) {
        const T v = values[i];
        smallest = v < smallest ? v : smallest;
        largest = v > largest ? v : largest;
        total += static_cast<double>(v);
        n_bad += v - v == 0 ? 0 : 1; // NaN, or infinity
    }
    facts = {static_cast<double>(smallest), static_cast<double>(largest), total, n_bad == 0};
}

KLNMF_OWN void count_wider(const double* values, std::int64_t begin, std::int64_t end,
                           std::uint8_t& any) {
    int n_wider = 0;
#pragma omp simd reduction(+ : n_wider)
    for (std::int64_t i = begin; i < end; ++i)
        n_wider += static_cast<double>(static_cast<float>(values[i])) == values[i] ? 0 : 1;
    any = n_wider > 0;
}

template <class Index>
KLNMF_OWN void find_falls(const Index* indptr, const Index* indices, std::int64_t begin,
                          std::int64_t end, std::uint8_t& any) {
    int n_falls = 0;
    for (std::int64_t row = begin; row < end; ++row) {
#pragma omp simd reduction(+ : n_falls)
        for (Index i = indptr[row]; i < indptr[row + 1] - 1; ++i)
            n_falls += indices[i] < indices[i + 1] ? 0 : 1;
        if (n_falls > 0)
            break;
    }
    any = n_falls > 0;
}

template <class T>
KLNMF_OWN void sums_of_range(const std::int64_t* indptr, const T* values, std::int64_t begin,
                             std::int64_t end, double* sums) {
    for (std::int64_t row = begin; row < end; ++row) {
        // Eight sums side by side, whatever the instruction set.
        constexpr int lanes = 8;
        double parts[lanes] = {};
        std::int64_t i = indptr[row];
        for (; i + lanes <= indptr[row + 1]; i += lanes)
#pragma GCC unroll 8
            for (int l = 0; l < lanes; ++l)
                parts[l] += static_cast<double>(values[i + l]);
        for (int l = 0; i < indptr[row + 1]; ++i, ++l)
            parts[l] += static_cast<double>(values[i]);
        sums[row] = ((parts[0] + parts[4]) + (parts[2] + parts[6])) +
                    ((parts[1] + parts[5]) + (parts[3] + parts[7]));
    }
}

template <class T>
KLNMF_OWN void constant_of_block(const T* values, std::int64_t begin, std::int64_t end,
                                 double& sum) {
    typedef double Four __attribute__((vector_size(32)));
    Four sums{};
    for (std::int64_t i = begin; i < end; i += 4) {
        Four v{};
        if (i + 4 <= end)
            for (int j = 0; j < 4; ++j)
                v[j] = static_cast<double>(values[i + j]);
        else
            for (int j = 0; i + j < end; ++j)
                v[j] = static_cast<double>(values[i + j]);
        sums += v * log_positive(v > 0 ? v : Four{} + 1.0) - v;
    }
    sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

KLNMF_OWN std::int64_t longest_difference(const std::int64_t* ends, std::int64_t size) {
    std::int64_t longest = 0;
#pragma omp simd reduction(max : longest)
    for (std::int64_t i = 0; i < size; ++i)
        longest = ends[i + 1] - ends[i] > longest ? ends[i + 1] - ends[i] : longest;
    return longest;
}

template <class T>
static constexpr ValueKernels<T> value_kernels_of_set = {
    column_powers_range<1, T>, column_powers_range<2, T>, extrapolate_range<T>, zeros_of_range<T>,
    facts_of_block<T>,         sums_of_range<T>,          constant_of_block<T>};

} // namespace klnmf

constinit const klnmf::PassKernels klnmf::KLNMF_SET::passes = {
    value_kernels_of_set<float>, value_kernels_of_set<double>, count_wider,
    find_falls<std::int32_t>,    find_falls<std::int64_t>,     longest_difference};
