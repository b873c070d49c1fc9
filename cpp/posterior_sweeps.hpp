// Sweeps of the Gibbs sampler of klnmf.uncertainty.posterior; docs/maths/posterior.md has every
// conditional. Sums over rows that threads share are of whole numbers: their order does not matter.
#pragma once

#include <cstdint>

namespace klnmf {

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
    double* W;               // in and out, rows x rank: proportions up to a factor, or rates
    double *means, *squares; // sums of moments of the proportions, or null
};

// Rates of cells that are not all observed once with Poisson counts: they have gamma factors of
// mean 1 and variance alpha_j, and some cells are missing. The factors of zeros are drawn in listed
// columns; in the others they have their means, to first order 1 - alpha_j y.
struct CellFactors {
    const double* alpha;        // by column
    const std::int32_t* listed; // columns, rising
    std::int64_t n_listed;
    const double* sums;                 // by component: of H over the columns not listed
    const double* gram;                 // rank x rank: sum of alpha_j h_j h_j' over the same
    const double* scales;               // of the components of W, since H was scaled to sums of 1
    const std::int64_t* missing_starts; // or null
    const std::int64_t* missing;        // columns, rising in every row
    std::int32_t* classes;              // in and out
    std::int64_t* exposures; // column x component, one copy per thread: sum_i factor w, for
                             // columns not listed less those that the means give
    double unit;             // whole numbers of `exposures` in 1
};

// Sums over the rows; each has one copy per thread, zero before: `take_sums` leaves them so.
struct SweepSums {
    std::int32_t* of_features; // column x component: counts of the component
    std::int64_t* of_classes;  // class x (rank + 2): sum_i psi(N_ik + a) - psi(a), the same of the
                               // totals, the number of rows
};

// z_ij ~ Multinomial(x_ij, w_i h_j), N_i = sum_j z_ij, c_i ~ pi_c DirichletMultinomial(N_i; a_c),
// w_i ~ Dirichlet(a_{c_i} + N_i) up to its sum, for every row. With factors of cells, the rates
// w_ik ~ Gamma(a_{c_i} + N_ik) / (b_i + sum_j factor_ij h_jk).
void sweep_rows(const SampledRows& rows, const double* H, std::int64_t n_columns,
                const MixturePrior& prior, const CellFactors* factors, std::uint64_t seed,
                std::uint64_t sweep, int n_threads, const SweepSums& sums);

// Adds up the copies of all threads, and sets them to 0.
template <class T>
void take_sums(T* copies, std::int64_t n_copies, std::int64_t size, int n_threads,
               std::int64_t* total);

// A mixture of gamma distributions of one shape, with these means, for every entry of H.
struct GammaScales {
    int n_scales;
    double shape;
    const double *means, *weights;
};

// Draws H (columns x rank) given the counts of components by feature, and by feature the amounts of
// the components that could have given counts; null: all of a component, which is its counts.
// Entries that are 0, and components that are fixed, stay as they are. `masses` are the sums that
// the drawn components had before they were scaled to 1; `moments` the conditional means and second
// moments of the entries, one below the other, scaled likewise; `responsibilities` how many entries
// each scale has.
void draw_components(std::int64_t n_columns, int rank, const std::int64_t* counts,
                     const double* exposures, const GammaScales& scales,
                     const std::uint8_t* is_fixed, std::uint64_t seed, std::uint64_t sweep,
                     int n_threads, double* H, double* masses, double* moments,
                     double* responsibilities);

// Sums over kept sweeps; columns x rank but for the first, which has means and second moments one
// below the other, as `moments`, and the last.
struct KeptSums {
    double *components, *batch;
    double* first_half; // null after it
    const double* reference;
    double* products; // null, or of d = mean - reference, by column: d, then d d'
};

// Adds the moments of one sweep.
void keep_moments(std::int64_t n_columns, int rank, const double* moments, const KeptSums& sums,
                  int n_threads);

} // namespace klnmf
