// Sweeps of the Gibbs sampler of klnmf.uncertainty.posterior; docs/maths/posterior.md has every
// conditional. Sums over rows that threads share are of whole numbers: their order does not matter.
#pragma once

#include <cstdint>

namespace klnmf {

constexpr double whole_per_unit = 0x1p30; // of sums of digamma differences, in whole numbers

// A mixture of Dirichlet distributions of the samples' proportions.
struct MixturePrior {
    int n_classes, rank;
    const double* concentrations; // class x component
    const double* log_weights;
};

// Counts of some rows, and what is drawn for each of them.
struct SampledRows {
    std::int64_t n_rows;
    const std::int64_t* indptr;
    const std::int32_t* indices;
    const std::int32_t* counts;
    double* W;               // in and out, rows x rank: proportions up to a factor
    double *means, *squares; // sums of conditional moments of the proportions, or null
};

// Sums over the rows; each has one copy per thread, zero before.
struct SweepSums {
    std::int32_t* of_features; // column x component: counts of the component
    std::int64_t* of_classes;  // class x (rank + 2): sum_i psi(N_ik + a) - psi(a), the same of the
                               // totals, the number of rows
};

// z_ij ~ Multinomial(x_ij, w_i h_j), N_i = sum_j z_ij, c_i ~ pi_c DirichletMultinomial(N_i; a_c),
// w_i ~ Dirichlet(a_{c_i} + N_i) up to its sum, for every row.
void sweep_rows(const SampledRows& rows, const double* H, std::int64_t n_columns,
                const MixturePrior& prior, std::uint64_t seed, std::uint64_t sweep, int n_threads,
                const SweepSums& sums);

// A mixture of gamma distributions of one shape, with these means, for every entry of H.
struct GammaScales {
    int n_scales;
    double shape;
    const double *means, *weights;
};

// Draws H (columns x rank) given the counts of components by feature. Entries that are 0, and
// components that are fixed, stay as they are. `masses` holds the sums that the drawn components
// had before they were scaled to 1; `moments` the conditional mean and second moment of the entries
// in units of these sums' means, one below the other; `responsibilities` how many entries each
// scale has.
void draw_components(std::int64_t n_columns, int rank, const std::int64_t* counts,
                     const GammaScales& scales, const std::uint8_t* is_fixed, std::uint64_t seed,
                     std::uint64_t sweep, int n_threads, double* H, double* moments,
                     double* responsibilities);

} // namespace klnmf
