// The sampler of klnmf.uncertainty.posterior in the extension module.
#include <algorithm>
#include <cstdint>

#include "binding_arrays.hpp"
#include "posterior_sweeps.hpp"
#include "random_draws.hpp"

namespace {

// The arrays of klnmf::CellFactors, kept alive.
struct BoundFactors {
    In1<double> alpha;
    In1<std::int32_t> listed;
    In1<double> sums;
    In2<double> gram;
    In1<double> scales;
    In1<std::int64_t> missing_starts, missing; // empty: nothing is missing
    Out1<std::int32_t> classes;
    Out2<std::int64_t> exposures;
    double unit;
};

template <class T>
void bind_take_sums(nb::module_& m) {
    m.def(
        "take_sums",
        [](Out2<T> copies, int n_threads, Out1<std::int64_t> total) {
            require(copies.shape(1) == total.size(), "each copy must have the size of the total");
            klnmf::take_sums(copies.data(), static_cast<std::int64_t>(copies.shape(0)),
                             static_cast<std::int64_t>(total.size()), n_threads, total.data());
        },
        "copies"_a.noconvert(), "n_threads"_a, "total"_a.noconvert(), Unlocked(),
        "Add up the copies of sums that threads have, and set them to 0; total is out.");
}

} // namespace

void bind_posterior(nb::module_& m) {
    nb::class_<BoundFactors>(m, "CellFactors")
        .def(
            "__init__",
            [](BoundFactors* self, In1<double> alpha, In1<std::int32_t> listed, In1<double> sums,
               In2<double> gram, In1<double> scales, In1<std::int64_t> missing_starts,
               In1<std::int64_t> missing, Out1<std::int32_t> classes, Out2<std::int64_t> exposures,
               double unit) {
                new (self) BoundFactors{alpha,          listed,  sums,    gram,      scales,
                                        missing_starts, missing, classes, exposures, unit};
            },
            "alpha"_a.noconvert(), "listed"_a.noconvert(), "sums"_a.noconvert(),
            "gram"_a.noconvert(), "scales"_a.noconvert(), "missing_starts"_a.noconvert(),
            "missing"_a.noconvert(), "classes"_a.noconvert(), "exposures"_a.noconvert(), "unit"_a);
    m.def(
        "sweep_rows",
        [](In1<std::int64_t> indptr, In1<std::int32_t> indices, In1<std::int32_t> counts,
           In2<double> H, In2<double> concentrations, In1<double> log_weights,
           const BoundFactors* bound, std::uint64_t seed, std::uint64_t sweep, int n_threads,
           Out2<double> W, Out2<double> moments, Out2<std::int32_t> of_features,
           Out2<std::int64_t> of_classes) {
            const std::size_t n = W.shape(0), rank = W.shape(1), n_classes = log_weights.size();
            require(indptr.size() == n + 1 && indices.size() == counts.size() &&
                        static_cast<std::size_t>(indptr.data()[n]) <= counts.size(),
                    "indptr, indices, counts and W must belong together");
            require(H.shape(1) == rank && concentrations.shape(0) == n_classes &&
                        concentrations.shape(1) == rank && n_classes > 0,
                    "H and the prior must have the components of W");
            require(moments.shape(0) == 0 ||
                        (moments.shape(0) == 2 * n && moments.shape(1) == rank),
                    "moments must be two arrays of the shape of W, or empty");
            const std::size_t threads = std::max(n_threads, 1);
            require(of_features.shape(0) == threads && of_classes.shape(0) == threads &&
                        of_features.shape(1) == H.size() &&
                        of_classes.shape(1) == n_classes * (rank + 2),
                    "the sums must have a row for each thread");
            const bool is_kept = moments.shape(0) > 0;
            klnmf::CellFactors factors{};
            if (bound) {
                const std::size_t m = H.shape(0), starts = bound->missing_starts.size();
                require(bound->alpha.size() == m && bound->sums.size() == rank &&
                            bound->gram.size() == rank * rank && bound->scales.size() == rank &&
                            bound->classes.size() == n && (starts == 0 || starts == n + 1),
                        "the factors of cells must have the rows and columns of the counts");
                require(bound->exposures.shape(0) == threads &&
                            bound->exposures.shape(1) == H.size(),
                        "the exposures must have a row for each thread");
                factors = {bound->alpha.data(),
                           bound->listed.data(),
                           static_cast<std::int64_t>(bound->listed.size()),
                           bound->sums.data(),
                           bound->gram.data(),
                           bound->scales.data(),
                           starts ? bound->missing_starts.data() : nullptr,
                           bound->missing.data(),
                           bound->classes.data(),
                           bound->exposures.data(),
                           bound->unit};
            }
            klnmf::sweep_rows({static_cast<std::int64_t>(n), indptr.data(), indices.data(),
                               counts.data(), W.data(), is_kept ? moments.data() : nullptr,
                               is_kept ? moments.data() + n * rank : nullptr},
                              H.data(), static_cast<std::int64_t>(H.shape(0)),
                              {static_cast<int>(n_classes), static_cast<int>(rank),
                               concentrations.data(), log_weights.data()},
                              bound ? &factors : nullptr, seed, sweep, n_threads,
                              {of_features.data(), of_classes.data()});
        },
        "indptr"_a.noconvert(), "indices"_a.noconvert(), "counts"_a.noconvert(), "H"_a.noconvert(),
        "concentrations"_a.noconvert(), "log_weights"_a.noconvert(), "factors"_a.none(), "seed"_a,
        "sweep"_a, "n_threads"_a, "W"_a.noconvert(), "moments"_a.noconvert(),
        "of_features"_a.noconvert(), "of_classes"_a.noconvert(), Unlocked(),
        "Split the counts of rows and draw their proportions; W is in and out, the others out.");
    bind_take_sums<std::int32_t>(m);
    bind_take_sums<std::int64_t>(m);
    m.def(
        "draw_components",
        [](In2<std::int64_t> counts, In2<double> exposures, In1<double> means, In1<double> weights,
           double shape, In1<std::uint8_t> is_fixed, std::uint64_t seed, std::uint64_t sweep,
           int n_threads, Out2<double> H, Out1<double> masses, Out2<double> moments,
           Out1<double> responsibilities) {
            const std::size_t m = H.shape(0), rank = H.shape(1);
            require(counts.shape(0) == m && counts.shape(1) == rank && is_fixed.size() == rank &&
                        moments.shape(0) == 2 * m && moments.shape(1) == rank &&
                        masses.size() == rank &&
                        (exposures.size() == 0 || exposures.size() == H.size()),
                    "counts, exposures, is_fixed and moments must have the shape of H");
            require(means.size() == weights.size() && means.size() == responsibilities.size() &&
                        means.size() > 0 && means.size() <= 32,
                    "each of at most 32 scales must have a mean, a weight and a responsibility");
            klnmf::draw_components(
                static_cast<std::int64_t>(m), static_cast<int>(rank), counts.data(),
                exposures.size() ? exposures.data() : nullptr,
                {static_cast<int>(means.size()), shape, means.data(), weights.data()},
                is_fixed.data(), seed, sweep, n_threads, H.data(), masses.data(), moments.data(),
                responsibilities.data());
        },
        "counts"_a.noconvert(), "exposures"_a.noconvert(), "means"_a.noconvert(),
        "weights"_a.noconvert(), "shape"_a, "is_fixed"_a.noconvert(), "seed"_a, "sweep"_a,
        "n_threads"_a, "H"_a.noconvert(), "masses"_a.noconvert(), "moments"_a.noconvert(),
        "responsibilities"_a.noconvert(), Unlocked(),
        "Draw the components given the counts of each; H is in and out, the last three are out.");
    m.def(
        "keep_moments",
        [](In2<double> moments, Out2<double> components, Out2<double> batch,
           Out2<double> first_half, In2<double> reference, Out2<double> products, int n_threads) {
            const std::size_t m = reference.shape(0), rank = reference.shape(1);
            require(moments.size() == 2 * m * rank && components.size() == moments.size() &&
                        batch.size() == m * rank &&
                        (first_half.size() == 0 || first_half.size() == m * rank) &&
                        (products.size() == 0 || products.size() == m * (rank + rank * rank)),
                    "the sums must have the shapes of the moments");
            klnmf::keep_moments(
                static_cast<std::int64_t>(m), static_cast<int>(rank), moments.data(),
                {components.data(), batch.data(), first_half.size() ? first_half.data() : nullptr,
                 reference.data(), products.size() ? products.data() : nullptr},
                n_threads);
        },
        "moments"_a.noconvert(), "components"_a.noconvert(), "batch"_a.noconvert(),
        "first_half"_a.noconvert(), "reference"_a.noconvert(), "products"_a.noconvert(),
        "n_threads"_a, Unlocked(),
        "Add the moments of a sweep to the sums; without a first half or products, these are "
        "empty.");
    m.def(
        "gamma_draws",
        [](double shape, std::uint64_t seed, Out1<double> draws) {
            for (std::size_t i = 0; i < draws.size(); ++i)
                draws.data()[i] = klnmf::Draws(seed, 0, i).gamma(shape);
        },
        "shape"_a, "seed"_a, "draws"_a.noconvert(), Unlocked(), "Gamma draws of scale 1.");
    m.def(
        "binomial_draws",
        [](std::int64_t n, double p, std::uint64_t seed, Out1<std::int64_t> draws) {
            for (std::size_t i = 0; i < draws.size(); ++i)
                draws.data()[i] = klnmf::Draws(seed, 0, i).binomial(n, p);
        },
        "n"_a, "p"_a, "seed"_a, "draws"_a.noconvert(), Unlocked(), "Binomial draws.");
}
