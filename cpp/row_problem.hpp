// What every rule for the row problem
//
//     minimise over x >= 0   f(x) = sum_k c_k x_k + l2/2 |x|^2 - sum_i v_i log (A x)_i
//
// is built from. Only the rows of A under the nonzeros of v are ever touched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "inlined.hpp"
#include "objective.hpp"
#include "row_gap.hpp"
#include "row_job.hpp"
#include "row_products.hpp"
#include "row_scratch.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

// Numbers below this are denormals in waiting.
template <class T>
KLNMF_INLINE constexpr T smallest_cover() {
    return Limits<T>::min * T(1e6);
}

// A nonzero counts as covered where y exceeds both that and this share of v: v / y cannot overflow.
template <class T>
KLNMF_INLINE constexpr T smallest_share() {
    return Limits<T>::min * T(1e8);
}

// For numbers and for vectors of them.
template <class T, class V>
KLNMF_INLINE auto is_covered(V y, V v) {
    const auto is_positive = y > smallest_cover<T>(), is_enough = y > v * smallest_share<T>();
    if constexpr (std::is_same_v<decltype(is_positive), const bool>)
        return is_positive && is_enough;
    else
        return is_positive & is_enough;
}

// One row of the data with the side that is fixed: what a rule gets to see.
template <class T>
struct Row {
    const std::int32_t* indices;
    std::int64_t length;        // nonzeros
    std::int64_t padded_length; // the same, rounded up; v and y are that long
    double total;               // sum of v
    std::int64_t available; // nonzeros of the data from this row's first on: what may be fetched
    FixedSide<T> fixed;
    const T* kept_products =
        nullptr; // of a tensor, where product_and_ratios leaves them; null: nowhere

    KLNMF_INLINE const T* fixed_row(std::int64_t i) const { return fixed.row(indices[i]); }
};

// The first `count` of the numbers at `from` as a vector of T, and 0 for the others; `available` is
// how many numbers there are to read.
template <class T, class D>
KLNMF_INLINE typename Lanes<T>::Vector load_first(const D* from, std::int64_t count,
                                                  std::int64_t available) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    if (available >= lanes) {
        const auto limit =
            static_cast<std::int32_t>(min_of<std::int64_t>(max_of<std::int64_t>(count, 0), lanes));
        return lane_numbers<T>() < limit ? load_as<T>(from) : V{};
    }
    V values{};
    for (int l = 0; l < lanes; ++l)
        if (l < count)
            values[l] = static_cast<T>(from[l]);
    return values;
}

// Copies the row's values, which may be of a wider type D, into the scratch, padded with v = 0 and
// y = 1, and returns their sum.
template <class T, class D>
KLNMF_INLINE double load_values(const D* from, const Row<T>& row, RowScratch<T>& scratch) {
    constexpr int lanes = Lanes<T>::count;
    using V = typename Lanes<T>::Vector;
    using Wide = typename Lanes<T>::Wide;
    Wide totals{};
    std::int64_t i = 0;
    for (; i + lanes <= row.length; i += lanes) {
        const V values = load_as<T>(from + i);
        store(scratch.v + i, values);
        totals += __builtin_convertvector(values, Wide);
    }
    // Rows are padded to whole vectors of floats, which may be two of doubles.
    for (; i < row.padded_length; i += lanes) {
        const V values = load_first<T>(from + i, row.length - i, row.available - i);
        store(scratch.v + i, values);
        store(scratch.y + i, V{} + T(1));
        totals += __builtin_convertvector(values, Wide);
    }
    return sum_lanes(totals);
}

// Copies the values and the x of row i into the scratch. `fixed` is the fixed side as it sees it.
template <class T>
KLNMF_INLINE Row<T> load_row(const RowJob<T>& job, std::int64_t i, const FixedSide<T>& fixed,
                             RowScratch<T>& scratch) {
    const SparseRows<T>& data = job.data;
    const T* const x = job.x_row(i);
    for (int k = 0; k < fixed.rank; ++k)
        scratch.x[k] = x[k];
    const std::int64_t begin = data.begin(i);
    const std::int64_t length = data.length(i);
    Row<T> result{data.indices + begin, length, padded(length), 0, data.available(i), fixed};
    result.kept_products = length <= scratch.products_kept ? scratch.products : nullptr;
    result.total = data.is_wide() ? load_values(data.wide + begin, result, scratch)
                                  : load_values(data.values + begin, result, scratch);
    return result;
}

// Sets a row without nonzeros to its minimiser, 0 but for what it holds, and returns whether it was
// one.
template <class T>
KLNMF_INLINE bool settle_empty_row(const RowJob<T>& job, std::int64_t i) {
    if (job.data.length(i) > 0)
        return false;
    T* const x = job.x_row(i);
    for (int k = 0; k < job.fixed.rank; ++k)
        x[k] = job.fixed.holds(k) ? x[k] : T(0);
    return true;
}

// The new x of row i.
template <class T>
KLNMF_INLINE void store_row(const RowJob<T>& job, std::int64_t i, const RowScratch<T>& scratch) {
    T* const x = job.x_row(i);
    for (int k = 0; k < job.fixed.rank; ++k)
        x[k] = scratch.x[k];
}

// sum + sum_j weights[j] * (entries k, k + 1, ... of the row a[j]).
template <class V, class T, int lanes>
KLNMF_INLINE V add_weighted(V sum, const V (&weights)[lanes], const T* const (&a)[lanes],
                            std::int64_t k) {
    V second{}; // two chains of additions: half the wait for the sum before
#pragma GCC unroll 8
    for (int j = 0; j < lanes; j += 2) {
        sum += weights[j] * load(a[j] + k);
        second += weights[j + 1] * load(a[j + 1] + k);
    }
    return sum + second;
}

// Nonzeros whose rows of A are fetched before they are needed, those of the rows to come included.
constexpr std::int64_t fetched_ahead = 24;

// Fetches the rows of A under a vector of nonzeros that comes `fetched_ahead` after nonzero i.
template <bool products = false, class T>
KLNMF_INLINE void fetch_ahead(const Row<T>& row, std::int64_t i, std::int64_t stride) {
    constexpr int lanes = Lanes<T>::count;
    if (!row.fixed.fetch_ahead || i + fetched_ahead + lanes > row.available)
        return;
    fetch_rows<lanes, products>(row.fixed, row.indices + i + fetched_ahead, stride);
}

// y = A x at the nonzeros and S_k = sum_i v_i A_ik / y_i for all k, in one pass over the rows of A.
// Nonzeros are taken a vector of them at a time: their products with x share the loads of x, their
// sums one tree of additions, their quotients one division. `blocks` is the number of vectors in a
// row of A, known when compiling for the usual ranks, so that x and S stay in registers; 0: read
// from the row. Returns whether x leaves a nonzero without cover; such nonzeros are left out of S.
// Rows of a tensor are made on the way.
template <int blocks, bool products, class T>
KLNMF_INLINE bool product_and_ratios_in(const Row<T>& row, RowScratch<T>& scratch) {
    using V = typename Lanes<T>::Vector;
    using Mask = typename Lanes<T>::Mask;
    constexpr int lanes = Lanes<T>::count;
    constexpr int in_registers = blocks > 0 ? blocks : 1;
    const std::int64_t stride = blocks > 0 ? blocks * lanes : row.fixed.stride;
    [[maybe_unused]] const T* const A = row.fixed.A;
    const bool in_pieces = row.length > piece;
    V x[in_registers], S[in_registers];
    if constexpr (blocks > 0) {
#pragma GCC unroll 8
        for (int b = 0; b < blocks; ++b) {
            x[b] = load(scratch.x + b * lanes);
            S[b] = V{};
        }
    } else {
        for (std::int64_t k = 0; k < stride; k += lanes)
            store(scratch.S + k, V{});
    }
    for (std::int64_t k = 0; in_pieces && k < stride; ++k)
        scratch.S_exact[k] = 0;
    Mask uncovered{};
    [[maybe_unused]] std::int32_t last[lanes];
    for (std::int64_t i = 0; i < row.length; i += lanes) {
        fetch_ahead<products>(row, i, stride);
        const T* a[lanes];
        V parts[lanes];
        if constexpr (products) {
            T* const made = scratch.products + (row.kept_products ? i * stride : 0);
            products_with_x<blocks>(row.fixed, row.indices + i, row.length - i, x, scratch.x, made,
                                    a, parts);
        } else {
            const std::int32_t* columns = row.indices + i;
            if (i + lanes > row.length) { // padding repeats the last nonzero's row; its v is 0
                for (int j = 0; j < lanes; ++j)
                    last[j] = row.indices[i + j < row.length ? i + j : row.length - 1];
                columns = last;
            }
#pragma GCC unroll 8
            for (int j = 0; j < lanes; ++j)
                a[j] = A + columns[j] * stride;
            partial_products<blocks>(a, x, scratch.x, stride, parts);
        }
        const V y = sum_each(parts), v = load(scratch.v + i);
        const Mask used = v > 0;
        const Mask covered = is_covered<T>(y, v);
        uncovered |= used & ~covered;
        // Padding, and a nonzero dropped by restart_uncovered_row, have v = 0 and keep y = 1.
        store(scratch.y + i, used ? y : V{} + T(1));
        V weights[lanes];
        repeat_each(covered ? v / y : V{}, weights);
        if constexpr (blocks > 0) {
#pragma GCC unroll 8
            for (int b = 0; b < blocks; ++b)
                S[b] = add_weighted(S[b], weights, a, b * lanes);
        } else {
            for (std::int64_t k = 0; k < stride; k += lanes)
                store(scratch.S + k, add_weighted(load(scratch.S + k), weights, a, k));
        }
        if (in_pieces && (i + lanes) % piece == 0) {
            if constexpr (blocks > 0)
                for (int b = 0; b < blocks; ++b) {
                    store(scratch.S + b * lanes, S[b]);
                    S[b] = V{};
                }
            for (std::int64_t k = 0; k < stride; ++k) {
                scratch.S_exact[k] += static_cast<double>(scratch.S[k]);
                scratch.S[k] = 0;
            }
        }
    }
    if constexpr (blocks > 0)
#pragma GCC unroll 8
        for (int b = 0; b < blocks; ++b)
            store(scratch.S + b * lanes, S[b]);
    for (std::int64_t k = 0; in_pieces && k < stride; ++k)
        scratch.S[k] = static_cast<T>(scratch.S_exact[k] + static_cast<double>(scratch.S[k]));
    bool any = false;
#pragma GCC unroll 8
    for (int j = 0; j < lanes; ++j)
        any |= uncovered[j] != 0;
    return any;
}

// Matrices and tensors have functions of their own: in one, the compiler makes both slower.
template <bool products, class T>
KLNMF_OWN bool product_and_ratios(const Row<T>& of, RowScratch<T>& own) {
    [[maybe_unused]] LocalIf<products, const Row<T>> row = of;
    LocalIf<products, RowScratch<T>> scratch = own;
    switch (row.fixed.stride / Lanes<T>::count) {
    case 1:
        return product_and_ratios_in<1, products>(row, scratch);
    case 2:
        return product_and_ratios_in<2, products>(row, scratch);
    case 3:
        return product_and_ratios_in<3, products>(row, scratch);
    case 4:
        return product_and_ratios_in<4, products>(row, scratch);
    case 5:
        return product_and_ratios_in<5, products>(row, scratch);
    case 6:
        return product_and_ratios_in<6, products>(row, scratch);
    case 7:
        return product_and_ratios_in<7, products>(row, scratch);
    case 8:
        return product_and_ratios_in<8, products>(row, scratch);
    default:
        return product_and_ratios_in<0, products>(row, scratch);
    }
}

template <class T>
KLNMF_INLINE bool product_and_ratios(const Row<T>& row, RowScratch<T>& scratch) {
    return row.fixed.has_products() ? product_and_ratios<true>(row, scratch)
                                    : product_and_ratios<false>(row, scratch);
}

// How much lower f could be than at x, at most, from S there.
template <class T>
KLNMF_INLINE double gap_of_row(const Row<T>& row, const RowScratch<T>& scratch) {
    return row_gap(row.fixed, scratch.x, scratch.S, row.fixed.held, row.total);
}

// Some components, a vector of them, at x.
template <class T>
struct AtComponents {
    typename Lanes<T>::Vector slope, x, gradient, violation;
};

// Components k, k + 1, ... at x, from S: their part of the gradient, and by how much they violate
// the optimality conditions. A dead component (slope 0: nothing in A, or barred in this row) does
// not, and is set to 0; one that is held does not either. `inverse_total` and `l2` are the row's,
// in T.
template <class T>
KLNMF_INLINE AtComponents<T> settle_dead(const Row<T>& row, std::int64_t k, T inverse_total, T l2,
                                         RowScratch<T>& scratch) {
    using V = typename Lanes<T>::Vector;
    const V c = load(row.fixed.slope + k);
    const V kept = row.fixed.held ? load(row.fixed.held + k) : V{};
    const V x = ((c > 0) | (kept > 0)) ? load(scratch.x + k) : V{};
    const V g = c + l2 * x - load(scratch.S + k);
    store(scratch.x + k, x);
    return {c, x, g, entry_residual(x * c * inverse_total, g * load(row.fixed.inverse_slope + k))};
}

// x becomes the same share of every live component, c_k x_k summing to the row's total: every
// nonzero that can be covered is. What is held stays.
template <class T>
KLNMF_INLINE void start_evenly(const Row<T>& row, RowScratch<T>& scratch) {
    double slope = 0;
    for (int k = 0; k < row.fixed.rank; ++k)
        slope += row.fixed.holds(k) ? 0.0 : row.fixed.c[k];
    for (int k = 0; k < row.fixed.rank; ++k)
        if (!row.fixed.holds(k))
            scratch.x[k] = row.fixed.c[k] > 0 ? static_cast<T>(row.total / slope) : T(0);
}

// Makes f finite where a start left a nonzero without cover. Nonzeros that no x can cover (their
// row of A is zero) are dropped from v; the value of such a row is infinite whatever x is. Returns
// whether any is.
template <class T>
KLNMF_INLINE bool restart_uncovered_row(const Row<T>& row, RowScratch<T>& scratch) {
    start_evenly(row, scratch);
    if (!product_and_ratios(row, scratch))
        return false;
    for (std::int64_t i = 0; i < row.length; ++i) {
        if (is_covered<T>(scratch.y[i], scratch.v[i]))
            continue;
        scratch.v[i] = 0;
        scratch.y[i] = 1;
    }
    return true;
}

// y += delta * column: the product after component x_k moved by delta.
template <class T>
KLNMF_INLINE void move_product(T* y, T delta, const T* column, std::int64_t padded_length) {
#pragma omp simd
    for (std::int64_t i = 0; i < padded_length; ++i)
        y[i] += delta * column[i];
}

// y = A x from scratch, for a row whose columns are not all gathered.
template <class T>
KLNMF_INLINE void product(const Row<T>& row, const T* x, RowScratch<T>& scratch) {
    const int rank = row.fixed.rank;
    for (std::int64_t i = 0; i < row.length; ++i) {
        if (scratch.v[i] == 0)
            continue; // dropped by restart_uncovered_row: y stays 1
        const T* a = row.fixed.has_products() ? scratch.products : row.fixed_row(i);
        if (row.fixed.has_products())
            multiply_rows(row.fixed, row.indices + i, row.fixed.stride, scratch.products);
        T y = 0;
#pragma omp simd reduction(+ : y)
        for (int k = 0; k < rank; ++k)
            y += a[k] * x[k];
        scratch.y[i] = y;
    }
}

// f at x, with y recomputed and summed in double: what decides whether a step is kept must not be
// rounded to the type of the factors. Not for tensors, see RowOutcome. `components` are all those
// with x > 0; where their columns are `gathered`, component j's is scratch.slots[j].
template <class T>
KLNMF_INLINE double exact_value(const Row<T>& row, const std::int32_t* components, int count,
                                bool gathered, const RowScratch<T>& scratch) {
    constexpr std::int64_t chunk = 128;
    double y[chunk];
    double log_sum = 0;
    const T* x = scratch.x;
    for (std::int64_t start = 0; start < row.padded_length; start += chunk) {
        const std::int64_t size =
            row.padded_length - start < chunk ? row.padded_length - start : chunk;
        for (std::int64_t i = 0; i < size; ++i)
            y[i] = 0;
        if (gathered) {
            for (int j = 0; j < count; ++j) {
                const double weight = x[components[j]];
                if (weight == 0)
                    continue;
                const T* column = scratch.columns + scratch.slots[j] * row.padded_length + start;
#pragma omp simd
                for (std::int64_t i = 0; i < size; ++i)
                    y[i] += weight * static_cast<double>(column[i]);
            }
        } else {
            const std::int64_t real = row.length - start < size ? row.length - start : size;
            for (std::int64_t i = 0; i < real; ++i) {
                const T* a = row.fixed_row(start + i);
                for (int j = 0; j < count; ++j)
                    y[i] += static_cast<double>(a[components[j]]) *
                            static_cast<double>(x[components[j]]);
            }
        }
        // Padding and dropped nonzeros have v = 0; give them a y whose logarithm is finite.
        for (std::int64_t i = 0; i < size; ++i)
            y[i] = scratch.v[start + i] > 0 ? y[i] : 1.0;
        log_sum += weighted_log_sum(scratch.v + start, y, size);
    }
    return linear_and_quadratic(row.fixed, x) - log_sum;
}

} // namespace klnmf
