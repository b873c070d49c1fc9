#include "data_passes.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "objective.hpp"
#include "parallel.hpp"
#include "vector_lanes.hpp"

namespace klnmf {
namespace {

// Values in a block of a sum, and in a task of every other pass.
constexpr std::int64_t values_per_block = 1 << 15;

// A value or an index that is read costs about as much as a few multiply-adds.
int threads_for(int requested, std::int64_t n_values) {
    return usable_threads(requested, 4 * n_values);
}

std::int64_t n_blocks(std::int64_t size) {
    return (size + values_per_block - 1) / values_per_block;
}

// Calls body(begin, end, block) for every block of values.
template <class Body>
void for_each_block(std::int64_t size, int n_threads, Body body) {
    for_each_range(
        size, threads_for(n_threads, size),
        [&](std::int64_t begin, std::int64_t end, int) {
            body(begin, end, begin / values_per_block);
        },
        values_per_block);
}

// Rows from one of these to the next have about a block of nonzeros.
template <class Index>
std::vector<std::int64_t> row_ranges(const Index* indptr, std::int64_t n_rows,
                                     std::int64_t nonzeros) {
    std::vector<std::int64_t> starts{0};
    while (starts.back() < n_rows) {
        const std::int64_t begin = starts.back();
        const Index* end = std::upper_bound(indptr + begin + 1, indptr + n_rows,
                                            static_cast<Index>(indptr[begin] + nonzeros));
        starts.push_back(std::max<std::int64_t>(end - indptr - 1, begin + 1));
        if (end == indptr + n_rows)
            starts.back() = n_rows;
    }
    return starts;
}

template <class T>
KLNMF_CLONES void facts_of_block(const T* values, std::int64_t begin, std::int64_t end,
                                 ValueFacts& facts) {
    T smallest = std::numeric_limits<T>::max(), largest = std::numeric_limits<T>::lowest();
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

KLNMF_CLONES void count_wider(const double* values, std::int64_t begin, std::int64_t end,
                              std::uint8_t& any) {
    int n_wider = 0;
#pragma omp simd reduction(+ : n_wider)
    for (std::int64_t i = begin; i < end; ++i)
        n_wider += static_cast<double>(static_cast<float>(values[i])) == values[i] ? 0 : 1;
    any = n_wider > 0;
}

template <class Index>
KLNMF_CLONES void find_falls(const Index* indptr, const Index* indices, std::int64_t begin,
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
KLNMF_CLONES void sums_of_range(const std::int64_t* indptr, const T* values, std::int64_t begin,
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
KLNMF_CLONES void constant_of_block(const T* values, std::int64_t begin, std::int64_t end,
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

// The transpose on one thread. indptr_out[c + 1] is first the number of entries of column c, then
// where the next one goes, and where they end when all are there.
template <class T>
void transpose_alone(const std::int64_t* indptr, std::int64_t n_rows, const std::int32_t* indices,
                     const T* values, std::int64_t n_cols, std::int64_t* indptr_out,
                     std::int32_t* indices_out, T* values_out) {
    std::fill(indptr_out, indptr_out + n_cols + 1, 0);
    std::int64_t* places = indptr_out + 1;
    for (std::int64_t i = 0; i < indptr[n_rows]; ++i)
        ++places[indices[i]];
    for (std::int64_t column = 0, place = 0; column < n_cols; ++column) {
        const std::int64_t count = places[column];
        places[column] = place;
        place += count;
    }
    for (std::int64_t row = 0; row < n_rows; ++row)
        for (std::int64_t i = indptr[row]; i < indptr[row + 1]; ++i) {
            const std::int64_t target = places[indices[i]]++;
            indices_out[target] = static_cast<std::int32_t>(row);
            values_out[target] = values[i];
        }
}

// Where each of `n_parts` parts puts its entries of every column, from how many it has: next[part *
// n_cols + column] in both. Parts follow each other within a column.
void places_of_parts(std::int64_t n_cols, int n_parts, int n_threads, std::int64_t* next,
                     std::int64_t* indptr_out) {
    // indptr_out[c + 1]: first the number of entries of column c, then where they end.
    constexpr std::int64_t columns_per_task = 2048;
    const int column_threads = threads_for(n_threads, n_cols * n_parts);
    indptr_out[0] = 0;
    for_each_range(
        n_cols, column_threads,
        [&](std::int64_t begin, std::int64_t end, int) {
            std::fill(indptr_out + begin + 1, indptr_out + end + 1, 0);
            for (int part = 0; part < n_parts; ++part)
                for (std::int64_t column = begin; column < end; ++column)
                    indptr_out[column + 1] += next[part * n_cols + column];
        },
        columns_per_task);
    for (std::int64_t column = 0; column < n_cols; ++column)
        indptr_out[column + 1] += indptr_out[column];
    for_each_range(
        n_cols, column_threads,
        [&](std::int64_t begin, std::int64_t end, int) {
            std::int64_t place[columns_per_task];
            std::copy(indptr_out + begin, indptr_out + end, place);
            for (int part = 0; part < n_parts; ++part)
                for (std::int64_t column = begin; column < end; ++column) {
                    std::int64_t& count = next[part * n_cols + column];
                    const std::int64_t first = place[column - begin];
                    place[column - begin] += count;
                    count = first;
                }
        },
        columns_per_task);
}

} // namespace

template <class T>
ValueFacts value_facts(const T* values, std::int64_t size, int n_threads) {
    std::vector<ValueFacts> parts(n_blocks(size));
    for_each_block(size, n_threads, [&](std::int64_t begin, std::int64_t end, std::int64_t block) {
        facts_of_block(values, begin, end, parts[block]);
    });
    constexpr double infinity = std::numeric_limits<double>::infinity();
    ValueFacts all{infinity, -infinity, 0, true};
    for (const ValueFacts& part : parts) {
        all.smallest = std::min(all.smallest, part.smallest);
        all.largest = std::max(all.largest, part.largest);
        all.total += part.total;
        all.finite &= part.finite;
    }
    return all;
}

bool are_floats(const double* values, std::int64_t size, int n_threads) {
    std::vector<std::uint8_t> wider(n_blocks(size));
    for_each_block(size, n_threads, [&](std::int64_t begin, std::int64_t end, std::int64_t block) {
        count_wider(values, begin, end, wider[block]);
    });
    return std::none_of(wider.begin(), wider.end(), [](std::uint8_t any) { return any; });
}

template <class Index>
bool columns_rise(const Index* indptr, std::int64_t n_rows, const Index* indices, int n_threads) {
    const auto starts = row_ranges(indptr, n_rows, values_per_block);
    std::vector<std::uint8_t> falls(starts.size());
    for_each_range(
        static_cast<std::int64_t>(starts.size()) - 1, threads_for(n_threads, indptr[n_rows]),
        [&](std::int64_t range, std::int64_t, int) {
            find_falls(indptr, indices, starts[range], starts[range + 1], falls[range]);
        },
        1);
    return std::none_of(falls.begin(), falls.end(), [](std::uint8_t any) { return any; });
}

template <class T>
void row_sums(const std::int64_t* indptr, std::int64_t n_rows, const T* values, int n_threads,
              double* sums) {
    const auto starts = row_ranges(indptr, n_rows, values_per_block);
    for_each_range(
        static_cast<std::int64_t>(starts.size()) - 1,
        threads_for(n_threads, indptr[n_rows] + n_rows),
        [&](std::int64_t range, std::int64_t, int) {
            sums_of_range(indptr, values, starts[range], starts[range + 1], sums);
        },
        1);
}

template <class T>
double divergence_constant(const T* values, std::int64_t size, int n_threads) {
    std::vector<double> parts(n_blocks(size));
    for_each_block(size, n_threads, [&](std::int64_t begin, std::int64_t end, std::int64_t block) {
        constant_of_block(values, begin, end, parts[block]);
    });
    double sum = 0;
    for (const double part : parts)
        sum += part;
    return sum;
}

template <class T>
void transpose_rows(const std::int64_t* indptr, std::int64_t n_rows, const std::int32_t* indices,
                    const T* values, std::int64_t n_cols, int n_threads, std::int64_t* indptr_out,
                    std::int32_t* indices_out, T* values_out) {
    const std::int64_t nnz = indptr[n_rows];
    // Consecutive rows for every thread, which counts its entries of each column; no more threads
    // than keep these counts below the nonzeros. After that each knows where its entries begin.
    const int n_parts = static_cast<int>(
        std::min<std::int64_t>(threads_for(n_threads, nnz), 1 + nnz / (n_cols + 1)));
    if (n_parts == 1)
        return transpose_alone(indptr, n_rows, indices, values, n_cols, indptr_out, indices_out,
                               values_out);
    std::vector<std::int64_t> next(static_cast<std::size_t>(n_parts) * n_cols);
    std::vector<std::int64_t> starts(n_parts + 1);
    for (int part = 0; part <= n_parts; ++part)
        starts[part] = std::lower_bound(indptr, indptr + n_rows, nnz / n_parts * part) - indptr;
    starts[0] = 0;
    starts[n_parts] = n_rows;
    for_each_range(
        n_parts, n_parts,
        [&](std::int64_t part, std::int64_t, int) {
            std::int64_t* counts = next.data() + part * n_cols;
            for (std::int64_t i = indptr[starts[part]]; i < indptr[starts[part + 1]]; ++i)
                ++counts[indices[i]];
        },
        1);
    places_of_parts(n_cols, n_parts, n_threads, next.data(), indptr_out);
    for_each_range(
        n_parts, n_parts,
        [&](std::int64_t part, std::int64_t, int) {
            std::int64_t* places = next.data() + part * n_cols;
            for (std::int64_t row = starts[part]; row < starts[part + 1]; ++row)
                for (std::int64_t i = indptr[row]; i < indptr[row + 1]; ++i) {
                    const std::int64_t target = places[indices[i]]++;
                    indices_out[target] = static_cast<std::int32_t>(row);
                    values_out[target] = values[i];
                }
        },
        1);
}

template <class T>
void sort_by_mode(const std::int32_t* coords, const T* values, std::int64_t nnz, std::int64_t mode,
                  std::int64_t size, std::span<const std::int32_t> modes,
                  const std::int32_t* offsets, int n_threads, std::int64_t* indptr_out,
                  std::int32_t* coords_out, T* values_out) {
    const std::int32_t* const keys = coords + mode * nnz;
    // Consecutive entries for every thread, as in transpose_rows.
    const int n_parts =
        static_cast<int>(std::min<std::int64_t>(threads_for(n_threads, nnz), 1 + nnz / (size + 1)));
    std::vector<std::int64_t> next(static_cast<std::size_t>(n_parts) * size);
    const auto for_each_part = [&](auto body) {
        for_each_range(
            n_parts, n_parts,
            [&](std::int64_t part, std::int64_t, int) {
                std::int64_t* const of_part = next.data() + part * size;
                for (std::int64_t i = nnz * part / n_parts; i < nnz * (part + 1) / n_parts; ++i)
                    body(i, of_part[keys[i]]++);
            },
            1);
    };
    for_each_part([](std::int64_t, std::int64_t) {});
    places_of_parts(size, n_parts, n_threads, next.data(), indptr_out);
    for_each_part([&](std::int64_t i, std::int64_t target) {
        for (std::size_t q = 0; q < modes.size(); ++q)
            coords_out[q * nnz + target] = coords[modes[q] * nnz + i] + offsets[q];
        values_out[target] = values[i];
    });
}

#define KLNMF_INSTANTIATE(T)                                                                       \
    template ValueFacts value_facts(const T*, std::int64_t, int);                                  \
    template void row_sums(const std::int64_t*, std::int64_t, const T*, int, double*);             \
    template double divergence_constant(const T*, std::int64_t, int);                              \
    template void transpose_rows(const std::int64_t*, std::int64_t, const std::int32_t*, const T*, \
                                 std::int64_t, int, std::int64_t*, std::int32_t*, T*);             \
    template void sort_by_mode(const std::int32_t*, const T*, std::int64_t, std::int64_t,          \
                               std::int64_t, std::span<const std::int32_t>, const std::int32_t*,   \
                               int, std::int64_t*, std::int32_t*, T*);

KLNMF_INSTANTIATE(float)
KLNMF_INSTANTIATE(double)

template bool columns_rise(const std::int32_t*, std::int64_t, const std::int32_t*, int);
template bool columns_rise(const std::int64_t*, std::int64_t, const std::int64_t*, int);

} // namespace klnmf
