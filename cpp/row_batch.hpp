// Short rows side by side: lane l of every vector belongs to the l-th row of a batch. Alone, a
// short row waits for its own sums, quotients and branches at every visit; a batch waits once for
// all of its rows. What happens in a lane depends on its row alone, so that it makes no difference
// which rows are batched together.
#pragma once

#include <cstdint>

#include "aligned_array.hpp"
#include "inlined.hpp"
#include "objective.hpp"
#include "row_problem.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

// Rows of up to this many nonzeros are batched; longer ones do well alone.
constexpr std::int64_t longest_batched_row = 64;

// Arrays over nonzeros have the lanes innermost: v[i * lanes + l]. A slot is a place in the order
// of visits; it may stand for another component in each lane.
template <class T>
struct RowBatch {
    static constexpr int lanes = Lanes<T>::count;

    RowBatch(std::int64_t longest_row, const FixedSide<T>& fixed) {
        const std::int64_t stride = fixed.stride;
        longest = padded(min_of(longest_row, longest_batched_row));
        for (AlignedArray<T>* array : {&v, &y, &v_rows, &y_rows})
            *array = AlignedArray<T>::zeros(longest * lanes);
        columns = AlignedArray<T>::zeros(stride * longest * lanes);
        for (AlignedArray<T>* array : {&x, &slope, &inverse_slope})
            *array = AlignedArray<T>::zeros(stride * lanes);
        for (AlignedArray<std::int32_t>* array : {&components, &slots})
            *array = AlignedArray<std::int32_t>::zeros(stride * lanes);
        products = AlignedArray<T>(fixed.has_products() ? lanes * longest * stride : 0);
        turns = AlignedArray<std::int32_t>::zeros(stride);
        zeros = AlignedArray<T>::zeros(stride);
    }

    KLNMF_INLINE T* column(int slot) { return columns.data() + slot * length * lanes; }
    KLNMF_INLINE const T* column(int slot) const { return columns.data() + slot * length * lanes; }

    std::int64_t longest; // nonzeros there is room for
    std::int64_t length;  // of the longest row, made even; padded with v = 0, y = 1, A = 0
    int n_slots;
    Row<T> rows[lanes]; // of length 0 where a lane is empty
    T* x_rows[lanes];   // where the new x goes
    int n_active[lanes];
    AlignedArray<T> v_rows, y_rows;          // lane x nonzero, as pass over a row left them
    AlignedArray<T> v, y;                    // nonzero x lane
    AlignedArray<T> products;                // lane x nonzero x component: rows of A of a tensor
    AlignedArray<T> columns;                 // slot x nonzero x lane: gathered from A
    AlignedArray<T> x, slope, inverse_slope; // slot x lane
    AlignedArray<std::int32_t> components;   // active component j of lane l, and
    AlignedArray<std::int32_t> slots;        // the slot where it stands: j x lane
    AlignedArray<std::int32_t> turns;        // where a component stands in the order of visits
    AlignedArray<T> zeros;                   // row of A of a padding nonzero
};

// Empties the batch.
template <class T>
KLNMF_INLINE void clear_batch(RowBatch<T>& batch) {
    batch.length = 0;
    for (int l = 0; l < batch.lanes; ++l) {
        batch.rows[l].length = 0;
        batch.rows[l].padded_length = 0;
        batch.n_active[l] = 0;
    }
}

// The scratch in which a row is screened before it is put into a lane: v and y stay there, and the
// products of a tensor.
template <class T>
KLNMF_INLINE RowScratch<T> scratch_of_lane(const RowScratch<T>& scratch, int lane,
                                           RowBatch<T>& batch) {
    RowScratch<T> result = scratch;
    result.v = batch.v_rows.data() + lane * batch.longest;
    result.y = batch.y_rows.data() + lane * batch.longest;
    if (scratch.products_kept > 0) {
        result.products = batch.products.data() + lane * batch.longest * scratch.stride;
        result.products_kept = batch.longest;
    }
    return result;
}

// Puts a screened row into a lane.
template <class T>
KLNMF_INLINE void put_row(const Row<T>& row, int lane, T* x_row, int n_active,
                          const std::int32_t* active, RowBatch<T>& batch) {
    constexpr int lanes = Lanes<T>::count;
    batch.rows[lane] = row;
    batch.x_rows[lane] = x_row;
    batch.n_active[lane] = n_active;
    batch.length = max_of(batch.length, row.length + row.length % 2);
    for (int j = 0; j < n_active; ++j)
        batch.components.data()[j * lanes + lane] = active[j];
}

// Brings v and y of all rows into lanes: squares transposed in registers.
template <class T>
KLNMF_INLINE void transpose_rows(RowBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    for (std::int64_t i = 0; i < batch.length; i += lanes) {
        V v[lanes], y[lanes];
#pragma GCC unroll 8
        for (int l = 0; l < lanes; ++l) {
            const bool inside = i < batch.rows[l].padded_length;
            v[l] = inside ? load(batch.v_rows.data() + l * batch.longest + i) : V{};
            y[l] = inside ? load(batch.y_rows.data() + l * batch.longest + i) : V{} + T(1);
        }
        transpose(v);
        transpose(y);
#pragma GCC unroll 8
        for (int l = 0; l < lanes; ++l) {
            store(batch.v.data() + (i + l) * lanes, v[l]);
            store(batch.y.data() + (i + l) * lanes, y[l]);
        }
    }
}

// Row of A under the i-th nonzero of every lane.
template <bool products, class T, int lanes>
KLNMF_INLINE void rows_of_lanes(const RowBatch<T>& batch, std::int64_t i, const T* (&a)[lanes]) {
#pragma GCC unroll 8
    for (int l = 0; l < lanes; ++l)
        a[l] = i >= batch.rows[l].length ? batch.zeros.data()
               : products ? batch.rows[l].kept_products + i * batch.rows[l].fixed.stride
                          : batch.rows[l].fixed_row(i);
}

// Gathers A by the lanes' own components. Slots that a lane does not use get some component: their
// x is 0.
template <bool products, class T>
KLNMF_INLINE void gather_lanes(RowBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    for (int l = 0; l < lanes; ++l)
        for (int j = batch.n_active[l]; j < batch.n_slots; ++j)
            batch.components.data()[j * lanes + l] = 0;
    for (std::int64_t i = 0; i < batch.length; ++i) {
        const T* a[lanes];
        rows_of_lanes<products>(batch, i, a);
        const std::int32_t* components = batch.components.data();
        T* target = batch.columns.data() + i * lanes;
        for (int j = 0; j < batch.n_slots; ++j) {
            V gathered{};
#pragma GCC unroll 8
            for (int l = 0; l < lanes; ++l)
                gathered[l] = a[l][components[l]];
            store(target, gathered);
            components += lanes;
            target += batch.length * lanes;
        }
    }
}

// Gathers all of A, each component in the slot of its turn: squares transposed in registers.
template <bool products, class T>
KLNMF_INLINE void gather_everything(const FixedSide<T>& fixed, RowBatch<T>& batch) {
    using V = typename Lanes<T>::Vector;
    constexpr int lanes = Lanes<T>::count;
    for (std::int64_t i = 0; i < batch.length; ++i) {
        const T* a[lanes];
        rows_of_lanes<products>(batch, i, a);
        for (std::int64_t k = 0; k < fixed.stride; k += lanes) {
            V square[lanes];
#pragma GCC unroll 8
            for (int l = 0; l < lanes; ++l)
                square[l] = load(a[l] + k);
            transpose(square);
#pragma GCC unroll 8
            for (int j = 0; j < lanes; ++j)
                if (k + j < fixed.rank)
                    store(batch.column(batch.turns.data()[k + j]) + i * lanes, square[j]);
        }
    }
}

template <bool products, class T>
KLNMF_INLINE void gather_batch(bool everything, const FixedSide<T>& fixed, RowBatch<T>& batch) {
    if (everything)
        gather_everything<products>(fixed, batch);
    else
        gather_lanes<products>(batch);
}

// The products of a tensor, in a function of its own, as in row_problem.hpp.
template <class T>
KLNMF_OWN void gather_products(bool everything, const FixedSide<T>& fixed, RowBatch<T>& batch) {
    gather_batch<true>(everything, fixed, batch);
}

// Slope of a slot without a component: no S reaches it, so that its x = 0 cannot move.
template <class T>
KLNMF_INLINE constexpr T unused_slope() {
    return Limits<T>::max / 4;
}

// Decides on the slots, gathers A and brings x and the slopes to their slots.
template <class T>
KLNMF_INLINE void fill_slots(const FixedSide<T>& fixed, const std::int32_t* order,
                             RowBatch<T>& batch) {
    constexpr int lanes = Lanes<T>::count;
    int most = 0;
    for (int l = 0; l < lanes; ++l)
        most = max_of(most, batch.n_active[l]);
    const bool everything = 3 * most > 2 * fixed.rank;
    batch.n_slots = everything ? fixed.rank : most;
    transpose_rows(batch);
    for (int j = 0; everything && j < fixed.rank; ++j)
        batch.turns.data()[order[j]] = j;
    if (fixed.has_products())
        gather_products(everything, fixed, batch);
    else
        gather_batch<false>(everything, fixed, batch);
    for (int slot = 0; slot < batch.n_slots * lanes; ++slot) {
        batch.x.data()[slot] = 0;
        batch.slope.data()[slot] = unused_slope<T>();
        batch.inverse_slope.data()[slot] = 0;
    }
    for (int l = 0; l < lanes; ++l)
        for (int j = 0; j < batch.n_active[l]; ++j) {
            const int k = batch.components.data()[j * lanes + l];
            const int slot = everything ? batch.turns.data()[k] : j;
            batch.slots.data()[j * lanes + l] = slot;
            batch.x.data()[slot * lanes + l] = batch.x_rows[l][k];
            batch.slope.data()[slot * lanes + l] = fixed.slope[k];
            batch.inverse_slope.data()[slot * lanes + l] = fixed.inverse_slope[k];
        }
}

// Writes the new x of one lane.
template <class T>
KLNMF_INLINE void store_lane(const RowBatch<T>& batch, int l) {
    constexpr int lanes = Lanes<T>::count;
    for (int j = 0; j < batch.n_active[l]; ++j)
        batch.x_rows[l][batch.components.data()[j * lanes + l]] =
            batch.x.data()[batch.slots.data()[j * lanes + l] * lanes + l];
}

// log_sums[l] (out) = sum_i v_i log y_i of every lane, with y computed anew in double.
template <class T>
KLNMF_INLINE void log_sums_of_lanes(const RowBatch<T>& batch, double* log_sums) {
    constexpr int lanes = Lanes<T>::count;
    using V = typename Lanes<T>::Vector;
    using Wide = typename Lanes<T>::Wide;
    constexpr std::int64_t chunk = 16;
    Wide y[chunk], sum{};
    for (std::int64_t start = 0; start < batch.length; start += chunk) {
        const std::int64_t size = min_of(chunk, batch.length - start);
        for (std::int64_t i = 0; i < size; ++i)
            y[i] = Wide{};
        for (int slot = 0; slot < batch.n_slots; ++slot) {
            const V x_of_slot = load(batch.x.data() + slot * lanes);
            if (!any_lane(x_of_slot > 0))
                continue;
            const Wide x = __builtin_convertvector(x_of_slot, Wide);
            const T* column = batch.column(slot) + start * lanes;
            for (std::int64_t i = 0; i < size; ++i)
                y[i] += x * __builtin_convertvector(load(column + i * lanes), Wide);
        }
        for (std::int64_t i = 0; i < size; ++i) {
            const Wide v =
                __builtin_convertvector(load(batch.v.data() + (start + i) * lanes), Wide);
            sum += v * log_positive(v > 0 ? y[i] : Wide{} + 1.0);
        }
    }
    for (int l = 0; l < lanes; ++l)
        log_sums[l] = sum[l];
}

} // namespace klnmf
