// The kernels of component_passes.hpp. Without fused multiply-adds (CMakeLists.txt), so that all
// instruction sets propose the same components, to the bit.
#include <cstdint>

#include "component_passes.hpp"
#include "inlined.hpp"
#include "kernel_set.hpp"
#include "objective.hpp"
#include "vector_lanes.hpp"

namespace klnmf {

KLNMF_DECLARE_KERNELS(KLNMF_SET)

using Four = Lanes<double>::Vector;
constexpr int at_once = Lanes<double>::count;

// Nonzeros that are looked at together; beyond the end of a row its last one is repeated.
struct Group {
    std::int64_t place[at_once];
    int size;

    KLNMF_INLINE Group(std::int64_t first, std::int64_t end) {
        for (int l = 0; l < at_once; ++l)
            place[l] = min_of(first + l, end - 1);
        size = static_cast<int>(min_of<std::int64_t>(at_once, end - first));
    }
    KLNMF_INLINE Four of(const double* values) const {
        return Four{values[place[0]], values[place[1]], values[place[2]], values[place[3]]};
    }
    KLNMF_INLINE Four of(const double* entries, const std::int32_t* indices) const {
        return Four{entries[indices[place[0]]], entries[indices[place[1]]],
                    entries[indices[place[2]]], entries[indices[place[3]]]};
    }
};

// `product` times the entries of one component's profiles, over the modes but `left_out`. `Others`
// is the number of other modes, or 0 if it is known when running only.
template <int Others>
KLNMF_INLINE Four times_profiles(const SampledNonzeros& x, const double* h, const Group& group,
                                 int left_out, Four product) {
    const int n_others = Others > 0 ? Others : x.n_others;
#pragma GCC unroll 2
    for (int q = 0; q < n_others; ++q)
        if (q != left_out)
            product *= group.of(h, x.indices + q * x.nnz);
    return product;
}

template <int Others>
KLNMF_OWN void products_of_rows(const SampledNonzeros& x, const double* W, const double* H,
                                int rank, std::int64_t begin, std::int64_t end, double* model) {
    const int n_others = Others > 0 ? Others : x.n_others;
    for (std::int64_t row = begin; row < end; ++row) {
        const double* w = W + row * rank;
        for (std::int64_t i = x.indptr[row]; i < x.indptr[row + 1]; i += at_once) {
            const Group group(i, x.indptr[row + 1]);
            double sums[at_once] = {}; // side by side: each has a sum to wait for
            for (int k = 0; k < rank; ++k)
                for (int l = 0; l < at_once; ++l) {
                    double product = H[x.indices[group.place[l]] * std::int64_t{rank} + k];
                    for (int q = 1; q < n_others; ++q)
                        product *=
                            H[x.indices[q * x.nnz + group.place[l]] * std::int64_t{rank} + k];
                    sums[l] += w[k] * product;
                }
            for (int l = 0; l < group.size; ++l)
                model[i + l] = sums[l];
        }
    }
}

template <int Others>
KLNMF_OWN void ratios_of_rows(const SampledNonzeros& x, const double* u, const double* h, int mode,
                              std::int64_t begin, std::int64_t end, double* sums) {
    for (std::int64_t row = begin; row < end; ++row) {
        double of_row = 0;
        const Four of_u = Four{} + u[row];
        for (std::int64_t i = x.indptr[row]; i < x.indptr[row + 1]; i += at_once) {
            const Group group(i, x.indptr[row + 1]);
            const Four model = times_profiles<Others>(x, h, group, -1, of_u);
            const Four ratio = group.of(x.v) / (group.of(x.y) + model);
            Four part = times_profiles<Others>(x, h, group, mode, ratio);
            if (mode >= 0)
                part *= of_u;
            for (int l = 0; l < group.size; ++l)
                if (mode >= 0)
                    sums[x.indices[mode * x.nnz + i + l]] += part[l];
                else
                    of_row += part[l];
        }
        if (mode < 0)
            sums[row] = of_row;
    }
}

template <int Others>
KLNMF_OWN void change_of_rows(const SampledNonzeros& x, const double* w, const double* h,
                              std::int64_t n_columns, int n_terms, double smallest,
                              std::int64_t begin, std::int64_t end, double* terms) {
    for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t i = x.indptr[row]; i < x.indptr[row + 1]; i += at_once) {
            const Group group(i, x.indptr[row + 1]);
            Four change{};
            for (int t = 0; t < n_terms; ++t)
                change += times_profiles<Others>(x, h + t * n_columns, group, -1,
                                                 Four{} + w[t * x.n_rows + row]);
            change = larger(change / group.of(x.y), Four{} + smallest);
            const Four term = group.of(x.v) * log_positive(change + 1.0);
            for (int l = 0; l < group.size; ++l)
                terms[i + l] = term[l];
        }
}

template <int Others>
static constexpr ComponentKernels of_modes = {products_of_rows<Others>, ratios_of_rows<Others>,
                                              change_of_rows<Others>};

} // namespace klnmf

constinit const klnmf::ComponentKernels klnmf::KLNMF_SET::components[3] = {
    klnmf::of_modes<0>, klnmf::of_modes<1>, klnmf::of_modes<2>};
