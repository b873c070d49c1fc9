#include "data_passes.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernel_set.hpp"
#include "parallel.hpp"

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

// A stable counting sort of entries with these keys: those with key j are from starts[j] on.
// place(begin, end, next) puts a range of entries to where they go, entry i to next[keys[i]]++.
//
// Consecutive entries for every thread, which counts its own of each key; no more threads than keep
// these counts below the entries. After that each knows where its entries begin.
template <class Place>
void counting_sort(const std::int32_t* keys, std::int64_t size, std::int64_t n_keys, int n_threads,
                   std::int64_t* starts, Place place) {
    const int n_parts = static_cast<int>(
        std::min<std::int64_t>(threads_for(n_threads, size), 1 + size / (n_keys + 1)));
    std::vector<std::int64_t> next(static_cast<std::size_t>(n_parts) * n_keys);
    const auto for_each_part = [&](auto body) {
        for_each_range(
            n_parts, n_parts,
            [&](std::int64_t part, std::int64_t, int) {
                body(size * part / n_parts, size * (part + 1) / n_parts,
                     next.data() + part * n_keys);
            },
            1);
    };
    for_each_part([keys](std::int64_t begin, std::int64_t end, std::int64_t* counts) {
        for (std::int64_t i = begin; i < end; ++i)
            ++counts[keys[i]];
    });
    places_of_parts(n_keys, n_parts, n_threads, next.data(), starts);
    for_each_part(place);
}

} // namespace

template <class T>
ValueFacts value_facts(const T* values, std::int64_t size, int n_threads) {
    std::vector<ValueFacts> parts(n_blocks(size));
    for_each_block(size, n_threads, [&](std::int64_t begin, std::int64_t end, std::int64_t block) {
        value_kernels<T>().facts(values, begin, end, parts[block]);
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
        kernels().passes->wider(values, begin, end, wider[block]);
    });
    return std::none_of(wider.begin(), wider.end(), [](std::uint8_t any) { return any; });
}

template <class Index>
bool columns_rise(const Index* indptr, std::int64_t n_rows, const Index* indices, int n_threads) {
    FindFalls<Index>* find_falls;
    if constexpr (sizeof(Index) == sizeof(std::int32_t))
        find_falls = kernels().passes->falls_of_int32;
    else
        find_falls = kernels().passes->falls_of_int64;
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
            value_kernels<T>().row_sums(indptr, values, starts[range], starts[range + 1], sums);
        },
        1);
}

template <class T>
double divergence_constant(const T* values, std::int64_t size, int n_threads) {
    std::vector<double> parts(n_blocks(size));
    for_each_block(size, n_threads, [&](std::int64_t begin, std::int64_t end, std::int64_t block) {
        value_kernels<T>().divergence_constant(values, begin, end, parts[block]);
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
    counting_sort(
        indices, indptr[n_rows], n_cols, n_threads, indptr_out,
        [=](std::int64_t begin, std::int64_t end, std::int64_t* next) {
            std::int64_t row = std::upper_bound(indptr, indptr + n_rows, begin) - indptr - 1;
            for (std::int64_t i = begin; i < end; ++row)
                for (const std::int64_t stop = std::min(end, indptr[row + 1]); i < stop; ++i) {
                    const std::int64_t target = next[indices[i]]++;
                    indices_out[target] = static_cast<std::int32_t>(row);
                    values_out[target] = values[i];
                }
        });
}

template <class T>
void sort_by_mode(const std::int32_t* coords, const T* values, std::int64_t nnz, std::int64_t mode,
                  std::int64_t size, std::span<const std::int32_t> modes,
                  const std::int32_t* offsets, int n_threads, std::int64_t* indptr_out,
                  std::int32_t* coords_out, T* values_out) {
    const std::int32_t* const keys = coords + mode * nnz;
    counting_sort(keys, nnz, size, n_threads, indptr_out,
                  [=](std::int64_t begin, std::int64_t end, std::int64_t* next) {
                      for (std::int64_t i = begin; i < end; ++i) {
                          const std::int64_t target = next[keys[i]]++;
                          for (std::size_t q = 0; q < modes.size(); ++q)
                              coords_out[q * nnz + target] =
                                  coords[modes[q] * nnz + i] + offsets[q];
                          values_out[target] = values[i];
                      }
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
