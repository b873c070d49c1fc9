// The extension module klnmf._core: array types are checked here, everything else was checked in
// Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "binding_arrays.hpp"
#include "component_passes.hpp"
#include "data_passes.hpp"
#include "instruction_sets.hpp"
#include "kernels.hpp"
#include "row_job.hpp"
#include "row_scratch.hpp"

namespace {

// The arrays of klnmf::RowConstraints, kept alive; one that is empty means that there is nothing of
// the kind.
struct BoundConstraints {
    In1<std::int64_t> missing_starts, missing, barred_starts;
    In1<std::int32_t> barred;
    In1<double> penalty_shares;
    double l1;
    In1<std::uint8_t> frozen;
    In1<std::int64_t> sizes; // of the factors in A, where there are several
};

template <class T>
const T* data_or_null(const In1<T>& array) {
    return array.size() > 0 ? array.data() : nullptr;
}

// The numbers in the arrays (bounds, order, that nothing frozen is barred) were checked in Python.
klnmf::RowConstraints constraints_of(const BoundConstraints* bound, std::size_t n_rows,
                                     std::size_t rank) {
    if (!bound)
        return {};
    const auto fits = [](std::size_t size, std::size_t wanted) {
        return size == 0 || size == wanted;
    };
    require(fits(bound->missing_starts.size(), n_rows + 1) &&
                fits(bound->barred_starts.size(), n_rows + 1) &&
                fits(bound->penalty_shares.size(), 2 * n_rows) && fits(bound->frozen.size(), rank),
            "the constraints must have a row for each row of the data");
    const auto ends_within = [n_rows](const In1<std::int64_t>& starts, std::size_t size) {
        return starts.size() == 0 || static_cast<std::size_t>(starts.data()[n_rows]) <= size;
    };
    const std::size_t n_sizes = std::max<std::size_t>(bound->sizes.size(), 1);
    require(ends_within(bound->missing_starts, bound->missing.size() / n_sizes) &&
                ends_within(bound->barred_starts, bound->barred.size()),
            "missing or barred ends before its starts");
    return {data_or_null(bound->missing_starts),
            bound->missing.data(),
            static_cast<std::int64_t>(bound->missing.size() / n_sizes),
            data_or_null(bound->sizes),
            static_cast<int>(n_sizes),
            data_or_null(bound->barred_starts),
            bound->barred.data(),
            data_or_null(bound->penalty_shares),
            bound->l1,
            data_or_null(bound->frozen)};
}

// The data and the fixed side of a job. Sizes must belong together; the numbers in the arrays
// (bounds of indices, finite values) are checked in Python once, not at every call.
template <class T, class D>
klnmf::RowJob<T> job_of(const In1<std::int64_t>& indptr, const In1<std::int32_t>& indices,
                        const In1<D>& values, const klnmf::FixedSide<T>& fixed,
                        std::size_t size_of_c) {
    require(indptr.size() > 0, "indptr is empty");
    const std::size_t n_rows = indptr.size() - 1;
    const auto nnz = static_cast<std::size_t>(indptr.data()[n_rows]);
    require(indices.size() >= nnz && values.size() >= nnz, "indices or values end before indptr");
    const std::size_t n_others = values.size() > 0 ? indices.size() / values.size() : 1;
    require(n_others < 2 || indices.size() == n_others * values.size(),
            "indices must have as many entries as values, or that for each of several factors");
    require(size_of_c == static_cast<std::size_t>(fixed.rank),
            "c must have an entry for each column of A");
    klnmf::RowJob<T> job{};
    job.data = {static_cast<std::int64_t>(n_rows), indptr.data(), indices.data(), nullptr};
    if constexpr (std::is_same_v<T, D>)
        job.data.values = values.data();
    else
        job.data.wide = values.data();
    job.fixed = fixed;
    job.fixed.n_others = static_cast<int>(std::max<std::size_t>(n_others, 1));
    job.fixed.index_stride = static_cast<std::int64_t>(values.size());
    return job;
}

template <class T>
void require_matrix(const klnmf::RowJob<T>& job) {
    require(!job.fixed.has_products(), "this rule takes matrices, not tensors");
}

// Where the rows of x are.
template <class T, class X>
auto* rows_of(const X& x, const klnmf::RowJob<T>& job) {
    require(x.shape(0) == static_cast<std::size_t>(job.data.n_rows) &&
                x.shape(1) == static_cast<std::size_t>(job.fixed.rank),
            "x must have a row for each row of the data");
    return x.data();
}

// Where the results of every row go; null for those that the kernel does not give.
struct Results {
    const Out1<double>* value;
    const Out1<double>* kkt;
    const Out1<double>* gap;
};

// Completes a job, but for its x.
template <class T>
void complete(klnmf::RowJob<T>& job, int n_threads, const Results& results,
              const BoundConstraints* constraints = nullptr) {
    const auto by_row = [&job](const Out1<double>* array) {
        require(!array || array->size() == static_cast<std::size_t>(job.data.n_rows),
                "value, kkt and gap must have an entry for each row of the data");
        return array ? array->data() : nullptr;
    };
    job.n_threads = n_threads;
    job.value = by_row(results.value);
    job.kkt = by_row(results.kkt);
    job.gap = by_row(results.gap);
    job.constraints = constraints_of(constraints, job.data.n_rows, job.fixed.rank);
}

// Defines a kernel over rows. In Python its arguments begin with the data and the fixed side, which
// `kernel` gets as a job, and go on with its own, whose names are given. Factors are of type T,
// data of type D.
template <class T, class D, class... Own, class... Names>
void def_rows(nb::module_& m, const char* name, const char* doc,
              void (*kernel)(klnmf::RowJob<T>, Own...), const Names&... names) {
    m.def(
        name,
        [kernel](In1<std::int64_t> indptr, In1<std::int32_t> indices, In1<D> values, In2<T> A,
                 In1<double> c, double l2, Own... own) {
            const auto rank = static_cast<std::int64_t>(A.shape(1));
            const klnmf::FixedSide<T> fixed{A.data(),
                                            static_cast<std::int64_t>(A.shape(0)),
                                            static_cast<int>(rank),
                                            rank,
                                            c.data(),
                                            l2};
            kernel(job_of<T>(indptr, indices, values, fixed, c.size()), std::move(own)...);
        },
        "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert(), "A"_a.noconvert(),
        "c"_a.noconvert(), "l2"_a, names..., Unlocked(), doc);
}

template <class T, class D>
void bind_mixed_kernels(nb::module_& m) {
    using Job = klnmf::RowJob<T>;
    const auto constraints = "constraints"_a.none() = nb::none();
    def_rows<T, D>(
        m, "guarded_rows",
        "One half-step of coordinate descent with steps that cannot overshoot; x, value, kkt, gap "
        "are out.",
        +[](Job job, In1<std::int32_t> order, int rounds, int sweeps, double tolerance,
            bool want_value, int n_threads, Out2<T> x, Out1<double> value, Out1<double> kkt,
            Out1<double> gap, const BoundConstraints* bound) {
            complete(job, n_threads, {&value, &kkt, &gap}, bound);
            job.x = rows_of(x, job);
            require(order.size() == x.shape(1), "order must have an entry for each column of A");
            klnmf::guarded_rows(job, {order.data(), rounds, sweeps, tolerance, want_value});
        },
        "order"_a.noconvert(), "rounds"_a, "sweeps"_a, "tolerance"_a, "want_value"_a, "n_threads"_a,
        "x"_a.noconvert(), "value"_a.noconvert(), "kkt"_a.noconvert(), "gap"_a.noconvert(),
        constraints);
    def_rows<T, D>(
        m, "newton_rows", "Every row problem solved to a residual; x, kkt and gap are out.",
        +[](Job job, bool cold, int relaxed, int rounds, double tolerance, int n_threads, Out2<T> x,
            Out1<double> kkt, Out1<double> gap, const BoundConstraints* bound) {
            complete(job, n_threads, {nullptr, &kkt, &gap}, bound);
            job.x = rows_of(x, job);
            klnmf::newton_rows(job, {cold, relaxed, rounds, tolerance});
        },
        "cold"_a, "relaxed"_a, "rounds"_a, "tolerance"_a, "n_threads"_a, "x"_a.noconvert(),
        "kkt"_a.noconvert(), "gap"_a.noconvert(), constraints);
    def_rows<T, D>(
        m, "multiplicative_rows",
        "One half-step of multiplicative updates; x, kkt and gap are out.",
        +[](Job job, int relaxed, int n_threads, Out2<T> x, Out1<double> kkt, Out1<double> gap,
            const BoundConstraints* bound) {
            complete(job, n_threads, {nullptr, &kkt, &gap}, bound);
            job.x = rows_of(x, job);
            klnmf::multiplicative_rows(job, relaxed);
        },
        "relaxed"_a, "n_threads"_a, "x"_a.noconvert(), "kkt"_a.noconvert(), "gap"_a.noconvert(),
        constraints);
    def_rows<T, D>(
        m, "evaluate_rows",
        "Value, residual and gap of every row at x, in double; value, kkt, gap are out.",
        +[](Job job, bool want_residual, int n_threads, In2<T> x, Out1<double> value,
            Out1<double> kkt, Out1<double> gap, const BoundConstraints* bound) {
            complete(job, n_threads, {&value, &kkt, &gap}, bound);
            klnmf::evaluate_rows(job, rows_of(x, job), want_residual);
        },
        "want_residual"_a, "n_threads"_a, "x"_a.noconvert(), "value"_a.noconvert(),
        "kkt"_a.noconvert(), "gap"_a.noconvert(), constraints);
}

template <class T>
void bind_row_kernels(nb::module_& m) {
    bind_mixed_kernels<T, T>(m);
    def_rows<T, T>(
        m, "paper_rows", "One half-step of the paper's Algorithm 2 as printed; x and kkt are out.",
        +[](klnmf::RowJob<T> job, In1<std::int32_t> order, double epsilon, double relative_change,
            bool signed_break, int max_newton, int n_threads, Out2<T> x, Out1<double> kkt) {
            complete(job, n_threads, {nullptr, &kkt, nullptr});
            job.x = rows_of(x, job);
            require(order.size() == x.shape(1), "order must have an entry for each column of A");
            require_matrix(job);
            klnmf::paper_rows(job,
                              {order.data(), epsilon, relative_change, signed_break, max_newton});
        },
        "order"_a.noconvert(), "epsilon"_a, "relative_change"_a, "signed_break"_a, "max_newton"_a,
        "n_threads"_a, "x"_a.noconvert(), "kkt"_a.noconvert());
    m.def(
        "dense_rows",
        [](In1<std::int64_t> indptr, In1<std::int32_t> indices, In1<T> values, In2<T> columns,
           In1<double> c, double l2, double relative_change, double floor, int max_newton,
           bool by_columns, int n_threads, Out2<T> x, Out2<double> P, Out1<double> kkt) {
            const auto n_cols = static_cast<std::int64_t>(columns.shape(1));
            const klnmf::FixedSide<T> fixed{
                columns.data(), n_cols, static_cast<int>(columns.shape(0)), n_cols, c.data(), l2};
            klnmf::RowJob<T> job = job_of<T>(indptr, indices, values, fixed, c.size());
            complete(job, n_threads, {nullptr, &kkt, nullptr});
            job.x = rows_of(x, job);
            require(P.shape(by_columns ? 1 : 0) == x.shape(0) &&
                        P.shape(by_columns ? 0 : 1) == columns.shape(1),
                    "P must be the product of the factors");
            require_matrix(job);
            klnmf::dense_rows(job, {relative_change, floor, max_newton}, P.data(), by_columns);
        },
        "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert(),
        "columns"_a.noconvert(), "c"_a.noconvert(), "l2"_a, "relative_change"_a, "floor"_a,
        "max_newton"_a, "by_columns"_a, "n_threads"_a, "x"_a.noconvert(), "P"_a.noconvert(),
        "kkt"_a.noconvert(), Unlocked(),
        "One half-step of cyclic descent on the dense product P; x, P and kkt are out.");
}

void bind_constraints(nb::module_& m) {
    nb::class_<BoundConstraints>(m, "RowConstraints",
                                 "What rows have of their own; empty arrays: nothing.")
        .def(
            "__init__",
            [](BoundConstraints* self, In1<std::int64_t> missing_starts, In1<std::int64_t> missing,
               In1<std::int64_t> barred_starts, In1<std::int32_t> barred,
               In1<double> penalty_shares, double l1, In1<std::uint8_t> frozen,
               In1<std::int64_t> sizes) {
                new (self) BoundConstraints{std::move(missing_starts), std::move(missing),
                                            std::move(barred_starts),  std::move(barred),
                                            std::move(penalty_shares), l1,
                                            std::move(frozen),         std::move(sizes)};
            },
            "missing_starts"_a.noconvert(), "missing"_a.noconvert(), "barred_starts"_a.noconvert(),
            "barred"_a.noconvert(), "penalty_shares"_a.noconvert(), "l1"_a, "frozen"_a.noconvert(),
            "sizes"_a.noconvert());
}

template <class T>
void bind_factor_kernels(nb::module_& m) {
    m.def(
        "column_powers",
        [](In2<T> factor, int power, int n_threads, Out1<double> sums) {
            require(sums.size() == factor.shape(1), "sums must have an entry for each column");
            require(power == 1 || power == 2, "power must be 1 or 2");
            klnmf::column_powers(factor.data(), power, static_cast<std::int64_t>(factor.shape(0)),
                                 static_cast<int>(factor.shape(1)), n_threads, sums.data());
        },
        "factor"_a.noconvert(), "power"_a, "n_threads"_a, "sums"_a.noconvert(), Unlocked(),
        "Column sums of a power in double, by blocks of 4096 rows; sums is out.");
    m.def(
        "count_zeros",
        [](In2<T> factor, int n_threads) {
            return klnmf::count_zeros(factor.data(), static_cast<std::int64_t>(factor.size()),
                                      n_threads);
        },
        "factor"_a.noconvert(), "n_threads"_a, Unlocked(), "How many entries are 0.");
    m.def(
        "extrapolate",
        [](In2<T> newest, In2<T> previous, double weight, double keep, int n_threads,
           Out2<T> target) {
            require(newest.size() == previous.size() && newest.size() == target.size(),
                    "newest, previous and target must have one size");
            klnmf::extrapolate(newest.data(), previous.data(),
                               static_cast<std::int64_t>(newest.size()), weight, keep, n_threads,
                               target.data());
        },
        "newest"_a.noconvert(), "previous"_a.noconvert(), "weight"_a, "keep"_a, "n_threads"_a,
        "target"_a.noconvert(), Unlocked(),
        "target = max(newest + weight (newest - previous), keep newest); target is out.");
}

// Passes over the values of X. Those over rows trust indptr, which was checked in Python, as far as
// its last entry.
template <class T>
void bind_value_passes(nb::module_& m) {
    const auto size_of = [](const In1<T>& values) {
        return static_cast<std::int64_t>(values.size());
    };
    m.def(
        "value_facts",
        [size_of](In1<T> values, int n_threads) {
            const klnmf::ValueFacts facts =
                klnmf::value_facts(values.data(), size_of(values), n_threads);
            return std::make_tuple(facts.smallest, facts.largest, facts.total, facts.finite);
        },
        "values"_a.noconvert(), "n_threads"_a, Unlocked(),
        "Smallest and largest value, the total, and whether all are finite.");
    m.def(
        "divergence_constant",
        [size_of](In1<T> values, int n_threads) {
            return klnmf::divergence_constant(values.data(), size_of(values), n_threads);
        },
        "values"_a.noconvert(), "n_threads"_a, Unlocked(), "Sum of v log v - v.");
    m.def(
        "row_sums",
        [](In1<std::int64_t> indptr, In1<T> values, int n_threads, Out1<double> sums) {
            require(indptr.size() == sums.size() + 1 &&
                        static_cast<std::size_t>(indptr.data()[sums.size()]) <= values.size(),
                    "indptr needs an entry more than sums, and must end within values");
            // Files may be damaged while they are read.
            require(std::is_sorted(indptr.data(), indptr.data() + indptr.size()) &&
                        indptr.data()[0] >= 0,
                    "indptr must not decrease");
            klnmf::row_sums(indptr.data(), static_cast<std::int64_t>(sums.size()), values.data(),
                            n_threads, sums.data());
        },
        "indptr"_a.noconvert(), "values"_a.noconvert(), "n_threads"_a, "sums"_a.noconvert(),
        Unlocked(), "Sum of every row, in double; sums is out.");
    m.def(
        "transpose_rows",
        [](In1<std::int64_t> indptr, In1<std::int32_t> indices, In1<T> values, int n_threads,
           Out1<std::int64_t> indptr_out, Out1<std::int32_t> indices_out, Out1<T> values_out) {
            require(indptr.size() > 0 && indptr_out.size() > 0, "indptr is empty");
            const auto nnz = static_cast<std::size_t>(indptr.data()[indptr.size() - 1]);
            require(indices.size() >= nnz && values.size() >= nnz && indices_out.size() >= nnz &&
                        values_out.size() >= nnz,
                    "indices or values end before indptr");
            klnmf::transpose_rows(indptr.data(), static_cast<std::int64_t>(indptr.size()) - 1,
                                  indices.data(), values.data(),
                                  static_cast<std::int64_t>(indptr_out.size()) - 1, n_threads,
                                  indptr_out.data(), indices_out.data(), values_out.data());
        },
        "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert(), "n_threads"_a,
        "indptr_out"_a.noconvert(), "indices_out"_a.noconvert(), "values_out"_a.noconvert(),
        Unlocked(), "The rows of the transpose, in order; the last three are out.");
    m.def(
        "sort_by_mode",
        [](In2<std::int32_t> coords, In1<T> values, int mode, In1<std::int32_t> modes,
           In1<std::int32_t> offsets, int n_threads, Out1<std::int64_t> indptr_out,
           Out2<std::int32_t> coords_out, Out1<T> values_out) {
            const std::size_t nnz = values.size(), n_modes = coords.shape(0);
            require(coords.shape(1) == nnz && values_out.size() == nnz &&
                        coords_out.shape(1) == nnz && indptr_out.size() > 0,
                    "coords and values must have the same entries, before and after");
            require(modes.size() == coords_out.shape(0) && offsets.size() == modes.size(),
                    "coords_out must have a row for each of the modes");
            const auto is_mode = [n_modes](int of) {
                return of >= 0 && static_cast<std::size_t>(of) < n_modes;
            };
            require(is_mode(mode) &&
                        std::all_of(modes.data(), modes.data() + modes.size(), is_mode),
                    "no such mode");
            klnmf::sort_by_mode<T>(coords.data(), values.data(), static_cast<std::int64_t>(nnz),
                                   mode, static_cast<std::int64_t>(indptr_out.size()) - 1,
                                   {modes.data(), modes.size()}, offsets.data(), n_threads,
                                   indptr_out.data(), coords_out.data(), values_out.data());
        },
        "coords"_a.noconvert(), "values"_a.noconvert(), "mode"_a, "modes"_a.noconvert(),
        "offsets"_a.noconvert(), "n_threads"_a, "indptr_out"_a.noconvert(),
        "coords_out"_a.noconvert(), "values_out"_a.noconvert(), Unlocked(),
        "Entries of a tensor in stable order of a mode; the last three are out.");
}

template <class Index>
void bind_index_passes(nb::module_& m) {
    m.def(
        "columns_rise",
        [](In1<Index> indptr, In1<Index> indices, int n_threads) {
            require(indptr.size() > 0 && static_cast<std::size_t>(
                                             indptr.data()[indptr.size() - 1]) <= indices.size(),
                    "indices end before indptr");
            return klnmf::columns_rise(indptr.data(), static_cast<std::int64_t>(indptr.size()) - 1,
                                       indices.data(), n_threads);
        },
        "indptr"_a.noconvert(), "indices"_a.noconvert(), "n_threads"_a, Unlocked(),
        "Whether the column numbers of every row are sorted, and none is there twice.");
}

// Nonzeros of a sample, with the model there where it is known. The numbers in the arrays are the
// sample's own.
klnmf::SampledNonzeros sampled(const In1<std::int64_t>& indptr, const In2<std::int32_t>& indices,
                               const double* v, const double* y) {
    require(indptr.size() > 0 &&
                static_cast<std::size_t>(indptr.data()[indptr.size() - 1]) == indices.shape(1),
            "indices must end with indptr");
    return {static_cast<std::int64_t>(indptr.size()) - 1,
            static_cast<std::int64_t>(indices.shape(1)),
            indptr.data(),
            indices.data(),
            static_cast<int>(indices.shape(0)),
            v,
            y};
}

void bind_component_passes(nb::module_& m) {
    m.def(
        "products_at_nonzeros",
        [](In1<std::int64_t> indptr, In2<std::int32_t> indices, In2<double> W, In2<double> H,
           int n_threads, Out1<double> model) {
            require(W.shape(0) + 1 == indptr.size() && W.shape(1) == H.shape(1) &&
                        model.size() == indices.shape(1),
                    "W, H and model must belong to the nonzeros");
            klnmf::products_at_nonzeros(sampled(indptr, indices, nullptr, nullptr), W.data(),
                                        H.data(), static_cast<int>(W.shape(1)), n_threads,
                                        model.data());
        },
        "indptr"_a.noconvert(), "indices"_a.noconvert(), "W"_a.noconvert(), "H"_a.noconvert(),
        "n_threads"_a, "model"_a.noconvert(), Unlocked(),
        "The model at the nonzeros, in double; model is out.");
    m.def(
        "change_of_logarithms",
        [](In1<std::int64_t> indptr, In2<std::int32_t> indices, In1<double> v, In1<double> y,
           In2<double> w, In2<double> h, double smallest, int n_threads, Out1<double> terms) {
            require(v.size() == indices.shape(1) && y.size() == v.size() &&
                        terms.size() == v.size() && w.shape(1) + 1 == indptr.size() &&
                        w.shape(0) == h.shape(0),
                    "v, y, w and terms must belong to the nonzeros");
            klnmf::change_of_logarithms(sampled(indptr, indices, v.data(), y.data()), w.data(),
                                        h.data(), static_cast<std::int64_t>(h.shape(1)),
                                        static_cast<int>(w.shape(0)), smallest, n_threads,
                                        terms.data());
        },
        "indptr"_a.noconvert(), "indices"_a.noconvert(), "v"_a.noconvert(), "y"_a.noconvert(),
        "w"_a.noconvert(), "h"_a.noconvert(), "smallest"_a, "n_threads"_a, "terms"_a.noconvert(),
        Unlocked(), "v log(1 + max(d / y, smallest)), where d is a sum of w h; terms is out.");
    m.def(
        "ratio_sums",
        [](In1<std::int64_t> indptr, In2<std::int32_t> indices, In1<double> v, In1<double> y,
           In2<double> u, In2<double> h, int mode, int n_threads, Out2<double> sums) {
            require(v.size() == indices.shape(1) && y.size() == v.size() &&
                        u.shape(1) + 1 == indptr.size() && u.shape(0) == h.shape(0),
                    "v, y and u must belong to the nonzeros");
            require(mode >= -1 && mode < static_cast<int>(indices.shape(0)), "no such mode");
            require(sums.shape(0) == u.shape(0) &&
                        sums.shape(1) == (mode < 0 ? u.shape(1) : h.shape(1)),
                    "sums must have the shape of u or of h");
            klnmf::ratio_sums(sampled(indptr, indices, v.data(), y.data()), u.data(), h.data(),
                              static_cast<std::int64_t>(h.shape(1)), static_cast<int>(u.shape(0)),
                              mode, n_threads, sums.data());
        },
        "indptr"_a.noconvert(), "indices"_a.noconvert(), "v"_a.noconvert(), "y"_a.noconvert(),
        "u"_a.noconvert(), "h"_a.noconvert(), "mode"_a, "n_threads"_a, "sums"_a.noconvert(),
        Unlocked(), "Sums of the ratios that multiplicative updates of u h need; sums is out.");
    m.def(
        "products_of_roots",
        [](In2<double> F, In1<double> sums, int n_threads, Out2<double> roots,
           Out2<double> products) {
            require(sums.size() == F.shape(1) && roots.shape(0) == F.shape(0) &&
                        roots.shape(1) == F.shape(1),
                    "sums must have an entry for each column, and roots the shape of F");
            require(products.shape(0) == F.shape(1) && products.shape(1) == F.shape(1),
                    "products must have a row and a column for each column");
            klnmf::products_of_roots(F.data(), static_cast<std::int64_t>(F.shape(0)),
                                     static_cast<int>(F.shape(1)), sums.data(), n_threads,
                                     roots.data(), products.data());
        },
        "F"_a.noconvert(), "sums"_a.noconvert(), "n_threads"_a, "roots"_a.noconvert(),
        "products"_a.noconvert(), Unlocked(),
        "Products of the columns of sqrt(F / sums); roots and products are out.");
}

void bind_instruction_sets(nb::module_& m) {
    const auto wanted = nb::cast<std::string>(
        nb::module_::import_("os").attr("environ").attr("get")("KLNMF_INSTRUCTION_SET", ""));
    try {
        klnmf::choose_instruction_set(wanted);
    } catch (const std::invalid_argument& error) { // becomes an ImportError
        throw std::runtime_error("the environment variable KLNMF_INSTRUCTION_SET is '" + wanted +
                                 "', but " + error.what() +
                                 ". Set it to one of these, or unset it for the highest one");
    }
    m.def("instruction_set", &klnmf::instruction_set,
          "The instruction set that the kernels in use were compiled for.");
    m.def("usable_instruction_sets", &klnmf::usable_instruction_sets,
          "Sets that this processor can run, from the lowest to the highest.");
}

} // namespace

NB_MODULE(_core, m) {
    m.doc() = "Kernels of klnmf. Use klnmf.backends.cpu, which checks what these assume.";
    bind_constraints(m);
    bind_row_kernels<float>(m);
    bind_row_kernels<double>(m);
    bind_mixed_kernels<float, double>(m);
    bind_factor_kernels<float>(m);
    bind_factor_kernels<double>(m);
    bind_value_passes<float>(m);
    bind_value_passes<double>(m);
    bind_index_passes<std::int32_t>(m);
    bind_index_passes<std::int64_t>(m);
    bind_component_passes(m);
    bind_posterior(m);
    m.def(
        "are_floats",
        [](In1<double> values, int n_threads) {
            return klnmf::are_floats(values.data(), static_cast<std::int64_t>(values.size()),
                                     n_threads);
        },
        "values"_a.noconvert(), "n_threads"_a, Unlocked(), "Whether float holds all values.");
    m.def(
        "blocked_sum",
        [](In1<double> values) {
            return klnmf::blocked_sum(values.data(), static_cast<std::int64_t>(values.size()));
        },
        "values"_a.noconvert(), "Sum by blocks of 4096 values, in order.");
    bind_instruction_sets(m);
    m.attr("ROWS_PER_SUM") = klnmf::rows_per_sum;
    m.attr("TILE") = klnmf::tile;
}
