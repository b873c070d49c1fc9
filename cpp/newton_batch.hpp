// Row problems side by side, for their solution by Newton's method: lane l of every vector belongs
// to the l-th row of a batch. Everything that a lane does depends on its row alone, so that it
// makes no difference which rows are batched together.
//
// In here a component is measured by its mass, c_k x_k, and its column of A is divided by c_k: all
// slopes are 1, at whatever scale the factors are. A component without mass (c = 0) is 0.
#pragma once

#include <algorithm>
#include <cstdint>

#include "aligned_array.hpp"
#include "inlined.hpp"
#include "row_problem.hpp"
#include "row_tasks.hpp"
#include "vector_lanes.hpp"
#include "way_search.hpp"

namespace klnmf {

// Longest row of a batch: the batch then takes the memory of a row of `tile` nonzeros.
template <class T>
KLNMF_INLINE constexpr std::int64_t longest_newton_row() {
    return tile / Lanes<T>::count;
}

// Whether a problem is one for Newton's method: without an L2 penalty, and of a rank whose matrix
// of second derivatives costs less than sweeps do.
template <class T>
KLNMF_INLINE bool suits_newton(const FixedSide<T>& fixed) {
    return fixed.l2 == 0 && fixed.rank <= 64;
}

// Nonzeros taken together in a pass.
constexpr std::int64_t pass_group = 4;

// Nonzeros whose scaled columns are kept at a time while the second derivatives are summed: few
// enough to stay in the first cache.
constexpr std::int64_t gram_chunk = 32;

// Arrays have the lanes innermost: v[i * lanes + l], columns[(i * rank + k) * lanes + l].
template <class T>
struct NewtonBatch {
    static constexpr int lanes = Lanes<T>::count;

    NewtonBatch(std::int64_t longest_row, int n_components, const FixedSide<T>& fixed)
        : rank(n_components) {
        const std::int64_t stride = fixed.stride;
        const std::int64_t longest =
            min_of(longest_row, longest_newton_row<T>()) + pass_group; // room for the padding
        columns = AlignedArray<T>(longest * rank * lanes);
        for (LaneArray<T>* array : {&v, &root, &y, &y_before})
            *array = LaneArray<T>(longest);
        for (LaneArray<T>* array :
             {&x, &S, &x_before, &S_before, &target, &slope_of_model, &may_move, &inverse_diagonal})
            *array = LaneArray<T>(rank);
        components = AlignedArray<std::int32_t>(rank * lanes);
        gram = AlignedArray<T>(static_cast<std::int64_t>(rank) * rank * lanes);
        scaled = AlignedArray<T>(gram_chunk * rank * lanes);
        products = AlignedArray<T>(fixed.has_products() ? lanes * stride : 0);
        zeros = AlignedArray<T>(stride);
        std::fill(zeros.data(), zeros.data() + stride, T(0));
    }

    int rank;
    std::int64_t length; // of the longest row, rounded up; padded with v = 0, y = 1, A = 0
    T totals_of_lanes[lanes];
    AlignedArray<T> columns; // rows of A: nonzero x component x lane
    LaneArray<T> v, root;    // nonzero x lane: values and their square roots
    LaneArray<T> y, y_before;
    LaneArray<T> x, S;                     // component x lane, like those below
    LaneArray<T> x_before, S_before;       // where a step started
    LaneArray<T> target;                   // where the model's minimum is
    LaneArray<T> slope_of_model;           // and the model's gradient there
    AlignedArray<std::int32_t> components; // slot x lane: the component that may move
    int n_slots;
    bool everything;               // slot k is component k
    LaneArray<T> may_move;         // slot x lane: 1 for a component that may, else 0
    LaneArray<T> inverse_diagonal; // of the matrix below
    AlignedArray<T> gram;          // slot x slot x lane: second derivatives
    AlignedArray<T> scaled;        // nonzero of a chunk x slot x lane
    AlignedArray<T> products;      // lane x component: rows of A of a tensor, while they are read
    AlignedArray<T> zeros;         // row of A of a padding nonzero
};

// Loads the rows' values, x and columns of A into lanes; those beyond the last row are empty.
// `data_values` are the values of all rows, which may be of a wider type D.
template <bool products, class T, class D>
KLNMF_OWN void load_batch(const RowJob<T>& job, const D* data_values, RowList together,
                          NewtonBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    const SparseRows<T>& data = job.data;
    const FixedSide<T> fixed = job.fixed;
    const std::int64_t* const rows = together.rows;
    const int count = static_cast<int>(together.count);
    constexpr std::int64_t ahead = 4;
    const std::int32_t* indices[lanes];
    const D* values[lanes];
    std::int64_t lengths[lanes] = {};
    batch.length = 0;
    for (int l = 0; l < lanes; ++l) {
        const std::int64_t row = rows[l < count ? l : 0], begin = data.begin(row);
        indices[l] = data.indices + begin;
        values[l] = data_values + begin;
        lengths[l] = l < count ? data.length(row) : 0;
        batch.length = max_of(batch.length, lengths[l]);
    }
    std::int64_t shortest = lengths[0];
    for (int l = 1; l < lanes; ++l)
        shortest = min_of(shortest, lengths[l]);
    batch.length = (batch.length + pass_group - 1) / pass_group * pass_group;
    typename Lanes<T>::Wide totals{};
    const T* a[lanes];
    for (std::int64_t i = 0; i < batch.length; ++i) {
        V v{};
        const auto row_of_lane = [&](int l) {
            T* const made = batch.products.data() + l * fixed.stride;
            if (products)
                multiply_rows(fixed, indices[l] + i, fixed.stride, made);
            return products ? made : fixed.row(indices[l][i]);
        };
        if (i < shortest) { // all lanes
#pragma GCC unroll 8
            for (int l = 0; l < lanes; ++l) {
                a[l] = row_of_lane(l);
                v[l] = static_cast<T>(values[l][i]);
            }
        } else {
#pragma GCC unroll 8
            for (int l = 0; l < lanes; ++l) {
                const bool inside = i < lengths[l];
                a[l] = inside ? row_of_lane(l) : batch.zeros.data();
                v[l] = inside ? static_cast<T>(values[l][i]) : T(0);
            }
        }
        if (fixed.fetch_ahead && i + ahead < shortest)
#pragma GCC unroll 8
            for (int l = 0; l < lanes; ++l)
                fetch_rows<1, products>(fixed, indices[l] + i + ahead, fixed.stride);
        batch.v.set(i, v);
        totals += __builtin_convertvector(v, typename Lanes<T>::Wide);
        T* target = batch.columns.data() + i * batch.rank * lanes;
        for (std::int64_t k = 0; k < fixed.stride; k += lanes) {
            V square[lanes];
#pragma GCC unroll 8
            for (int l = 0; l < lanes; ++l)
                square[l] = load(a[l] + k) * load(fixed.inverse_slope + k);
            transpose(square);
            if (k + lanes <= batch.rank)
#pragma GCC unroll 8
                for (int j = 0; j < lanes; ++j)
                    store(target + (k + j) * lanes, square[j]);
            else
                for (int j = 0; k + j < batch.rank; ++j)
                    store(target + (k + j) * lanes, square[j]);
        }
    }
    for (std::int64_t i = 0; i < batch.length * lanes; ++i)
        batch.root.data()[i] = square_root(batch.v.data()[i]);
    store(batch.totals_of_lanes, __builtin_convertvector(totals, V));
    for (int k = 0; k < batch.rank; ++k)
        for (int l = 0; l < lanes; ++l)
            batch.x.at(k, l) = l < count ? job.x_row(rows[l])[k] * fixed.slope[k] : T(0);
}

// Every component the same share of the row's total: all nonzeros that can be covered are.
template <class T>
KLNMF_INLINE void start_evenly(const FixedSide<T>& fixed, NewtonBatch<T>& batch) {
    double slope = 0;
    for (int k = 0; k < batch.rank; ++k)
        slope += fixed.c[k];
    for (int k = 0; k < batch.rank; ++k) {
        const T share = fixed.c[k] > 0 ? static_cast<T>(fixed.c[k] / slope) : T(0);
        batch.x.set(k, load(batch.totals_of_lanes) * share);
    }
}

// y = A x and S_k = sum_i v_i A_ik / y_i of every lane. `uncovered` (out) are the lanes whose x
// leaves a nonzero without cover; such nonzeros are left out of S.
template <class T>
KLNMF_OWN void pass_over(NewtonBatch<T>& batch, typename Lanes<T>::Mask& uncovered) {
    using V = typename Lanes<T>::Vector;
    using Mask = typename Lanes<T>::Mask;
    constexpr int lanes = Lanes<T>::count, group = pass_group;
    const int rank = batch.rank, even = rank / 2 * 2;
    const std::int64_t step = static_cast<std::int64_t>(rank) * lanes;
    const T* const x = batch.x.data();
    T* const S = batch.S.data();
    for (int k = 0; k < rank; ++k)
        store(S + k * lanes, V{});
    Mask found{};
    for (std::int64_t i = 0; i < batch.length; i += group) {
        const T* const a = batch.columns.data() + i * step;
        V even_sums[group] = {}, odd_sums[group] = {};
        for (int k = 0; k < even; k += 2) {
            const V x_even = load(x + k * lanes), x_odd = load(x + (k + 1) * lanes);
#pragma GCC unroll 8
            for (int j = 0; j < group; ++j) {
                even_sums[j] += x_even * load(a + j * step + k * lanes);
                odd_sums[j] += x_odd * load(a + j * step + (k + 1) * lanes);
            }
        }
        if (even < rank)
#pragma GCC unroll 8
            for (int j = 0; j < group; ++j)
                even_sums[j] += load(x + even * lanes) * load(a + j * step + even * lanes);
        V weights[group];
#pragma GCC unroll 8
        for (int j = 0; j < group; ++j) {
            const V v = batch.v[i + j], y = even_sums[j] + odd_sums[j];
            const Mask used = v > 0;
            const Mask covered = is_covered<T>(y, v);
            found |= used & ~covered;
            batch.y.set(i + j, used ? y : V{} + T(1));
            weights[j] = used & covered ? v / y : V{};
        }
        for (int k = 0; k < rank; ++k) {
            V first = load(S + k * lanes), second{};
#pragma GCC unroll 8
            for (int j = 0; j < group; j += 2) {
                first += weights[j] * load(a + j * step + k * lanes);
                second += weights[j + 1] * load(a + (j + 1) * step + k * lanes);
            }
            store(S + k * lanes, first + second);
        }
    }
    uncovered = found;
}

// Drops the nonzeros that the present x, all components in use, leaves without cover: their row of
// A is zero, no x can cover them, and f is infinite whatever x is. What is minimised is the rest.
template <class T>
KLNMF_INLINE void drop_uncovered(NewtonBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    using Mask = typename Lanes<T>::Mask;
    typename Lanes<T>::Wide totals{};
    for (std::int64_t i = 0; i < batch.length; ++i) {
        const V v = batch.v[i], y = batch.y[i];
        const Mask covered = is_covered<T>(y, v);
        const V kept = covered ? v : V{};
        batch.v.set(i, kept);
        batch.y.set(i, covered ? y : V{} + T(1));
        batch.root.set(i, covered ? batch.root[i] : V{});
        totals += __builtin_convertvector(kept, typename Lanes<T>::Wide);
    }
    store(batch.totals_of_lanes, __builtin_convertvector(totals, V));
    for (int k = 0; k < batch.rank; ++k) {
        const V x = batch.x[k];
        batch.x.set(k, load(batch.totals_of_lanes) > 0 ? x : V{});
    }
}

// Decides which components a Newton step may move: in every lane those in use and those whose
// gradient says that they would grow. A slot is a place for one of them in every lane, in the order
// of the components: all components have a slot, or, where they are few, those that may move.
template <class T>
KLNMF_INLINE void choose_slots(NewtonBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    using Mask = typename Lanes<T>::Mask;
    constexpr int lanes = Lanes<T>::count;
    Mask n_free{};
    for (int k = 0; k < batch.rank; ++k) {
        const V x = batch.x[k], S = batch.S[k];
        const Mask is_free = (x > 0) | (S > 1);
        n_free -= is_free;
        batch.target.set(k, x);
        batch.slope_of_model.set(k, T(1) - S);
        batch.may_move.set(k, is_free ? V{} + T(1) : V{});
    }
    std::int64_t most = 0;
    for (int l = 0; l < lanes; ++l)
        most = max_of<std::int64_t>(most, n_free[l]);
    batch.everything = 4 * most > 3 * batch.rank;
    batch.n_slots = batch.everything ? batch.rank : static_cast<int>(most);
    if (batch.everything)
        return;
    AlignedArray<T>* const arrays[] = {&batch.may_move, &batch.target, &batch.slope_of_model};
    for (int l = 0; l < lanes; ++l) {
        int slot = 0;
        for (int k = 0; k < batch.rank; ++k) {
            if (batch.may_move.at(k, l) == 0)
                continue;
            for (AlignedArray<T>* array : arrays)
                array->data()[slot * lanes + l] = array->data()[k * lanes + l];
            batch.components.data()[slot++ * lanes + l] = k;
        }
        for (; slot < batch.n_slots; ++slot) {
            batch.may_move.at(slot, l) = 0;
            batch.components.data()[slot * lanes + l] = 0;
        }
    }
}

// gram (out) = sum_i v_i a_i a_i^T / y_i^2 on the slots' components, in every lane.
template <class T>
KLNMF_OWN void second_derivatives(NewtonBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count, tall = 4, wide = 4;
    const int n_slots = batch.n_slots, rank = batch.rank;
    const std::int64_t step = static_cast<std::int64_t>(n_slots) * lanes;
    T* const gram = batch.gram.data();
    for (std::int64_t start = 0; start < batch.length; start += gram_chunk) {
        const std::int64_t size = min_of(gram_chunk, batch.length - start);
        for (std::int64_t i = 0; i < size; ++i) {
            const V y = batch.y[start + i];
            const V weight = batch.root[start + i] / y;
            const T* const a = batch.columns.data() + (start + i) * rank * lanes;
            T* const target = batch.scaled.data() + i * step;
            if (batch.everything)
                for (int slot = 0; slot < n_slots; ++slot)
                    store(target + slot * lanes, weight * load(a + slot * lanes));
            else
                for (int slot = 0; slot < n_slots; ++slot) {
                    const std::int32_t* const k = batch.components.data() + slot * lanes;
                    V gathered{};
#pragma GCC unroll 8
                    for (int l = 0; l < lanes; ++l)
                        gathered[l] = a[k[l] * lanes + l];
                    store(target + slot * lanes, weight * gathered);
                }
        }
        // Tiles of the lower triangle; where one reaches beyond it, rows and columns are repeated.
        for (int row = 0; row < n_slots; row += tall)
            for (int column = 0; column <= min_of(row + tall, n_slots) - 1; column += wide) {
                int rows[tall], columns[wide];
                for (int p = 0; p < tall; ++p)
                    rows[p] = min_of(row + p, n_slots - 1);
                for (int q = 0; q < wide; ++q)
                    columns[q] = min_of(column + q, n_slots - 1);
                V sums[tall][wide] = {};
                const T* b = batch.scaled.data();
                for (std::int64_t i = 0; i < size; ++i, b += step) {
                    V right[wide];
#pragma GCC unroll 8
                    for (int q = 0; q < wide; ++q)
                        right[q] = load(b + columns[q] * lanes);
#pragma GCC unroll 8
                    for (int p = 0; p < tall; ++p) {
                        const V left = load(b + rows[p] * lanes);
#pragma GCC unroll 8
                        for (int q = 0; q < wide; ++q)
                            sums[p][q] += left * right[q];
                    }
                }
                for (int p = 0; p < tall && row + p < n_slots; ++p)
                    for (int q = 0; q < wide && column + q <= row + p; ++q) {
                        T* const entry = gram + ((row + p) * n_slots + column + q) * lanes;
                        store(entry, start == 0 ? sums[p][q] : load(entry) + sums[p][q]);
                    }
            }
    }
    for (int row = 0; row < n_slots; ++row)
        for (int column = row + 1; column < n_slots; ++column)
            store(gram + (row * n_slots + column) * lanes,
                  load(gram + (column * n_slots + row) * lanes));
}

} // namespace klnmf
