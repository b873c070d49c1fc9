#include "posterior_sweeps.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "parallel.hpp"
#include "random_draws.hpp"

namespace klnmf {
namespace {

constexpr std::int64_t columns_per_sum = 64; // sums of columns are over blocks of this size

// What the scales say of an entry with a count K where E counts of the component could have been:
// cumulative responsibilities omega_s NB(K; shape, mean mu_s E), then the mean and second moment.
class ScaleTables {
public:
    // With exposures of their own, entries have no table.
    ScaleTables(const GammaScales& scales, const std::vector<double>& totals, bool has_exposures,
                int n_threads)
        : scales_(scales), width_(scales.n_scales + 2), bases_(scales.n_scales) {
        for (int s = 0; s < scales.n_scales; ++s)
            bases_[s] = scales.shape / scales.means[s];
        if (has_exposures)
            return;
        const auto rank = static_cast<std::int64_t>(totals.size());
        entries_.resize(rank * size * width_);
        for_each_range(
            rank, n_threads,
            [&](std::int64_t begin, std::int64_t end, int) {
                for (std::int64_t k = begin; k < end; ++k)
                    for (int count = 0; count < size; ++count)
                        fill(count, totals[k], &entries_[(k * size + count) * width_]);
            },
            1);
    }

    double rate(double exposure, int s) const { return bases_[s] + exposure; }

    // The entry of the table, or null if it is not there.
    const double* known(int k, std::int64_t count) const {
        const std::size_t at = (static_cast<std::size_t>(k) * size + count) * width_;
        return !entries_.empty() && count < size ? &entries_[at] : nullptr;
    }

    static constexpr int size = 64;
    static constexpr int most_scales = 32;

    KLNMF_INLINE void fill(std::int64_t count, double exposure, double* entry) const {
        // omega d^kappa q^K with d = 1 / (kappa + t), q = t d, t = mu E; a power of q is made
        // by squaring if K is small, and by logarithms if it may be too small a number.
        const int n = scales_.n_scales;
        const double shape = scales_.shape + static_cast<double>(count);
        double ratios[most_scales], weights[most_scales];
        for (int s = 0; s < n; ++s) {
            const double t = scales_.means[s] * exposure, d = 1 / (scales_.shape + t);
            ratios[s] = t * d;
            weights[s] =
                scales_.weights[s] * (scales_.shape == 2 ? d * d : std::pow(d, scales_.shape));
        }
        if (count < size) {
            for (std::int64_t left = count; left > 0; left >>= 1) {
                if (left & 1)
                    for (int s = 0; s < n; ++s)
                        weights[s] *= ratios[s];
                for (int s = 0; s < n; ++s)
                    ratios[s] *= ratios[s];
            }
        } else {
            double largest = -INFINITY;
            for (int s = 0; s < n; ++s) {
                weights[s] =
                    std::log(weights[s]) + static_cast<double>(count) * std::log(ratios[s]);
                largest = std::max(largest, weights[s]);
            }
            for (int s = 0; s < n; ++s)
                weights[s] = std::exp(weights[s] - largest);
        }
        double sum = 0, mean = 0, square = 0;
        for (int s = 0; s < n; ++s) {
            const double scale = 1 / rate(exposure, s);
            entry[s] = sum += weights[s];
            mean += weights[s] * scale;
            square += weights[s] * scale * scale;
        }
        const double inverse = 1 / sum;
        for (int s = 0; s < n; ++s)
            entry[s] *= inverse;
        entry[n] = shape * mean * inverse;
        entry[n + 1] = shape * (shape + 1) * square * inverse;
    }

private:
    const GammaScales& scales_;
    int width_;
    std::vector<double> bases_, entries_; // shape / mean of the scales
};

// Adds up the counts of components, and how many entries of tables there are by count.
void count_entries(std::int64_t n_columns, int rank, const std::int64_t* counts,
                   const std::uint8_t* is_fixed, int n_threads, const double* H,
                   std::vector<double>& totals, std::vector<std::int64_t>& n_known) {
    constexpr int size = ScaleTables::size;
    const std::int64_t width = rank * (size + 1);
    std::vector<std::int64_t> of_threads(std::max(n_threads, 1) * width);
    for_each_range(
        n_columns, n_threads,
        [&](std::int64_t begin, std::int64_t end, int thread) {
            std::int64_t* sums = &of_threads[thread * width];
            for (std::int64_t j = begin; j < end; ++j)
                for (int k = 0; k < rank; ++k) {
                    const std::int64_t count = counts[j * rank + k];
                    sums[k] += count;
                    if (count < size && H[j * rank + k] != 0 && !is_fixed[k])
                        ++sums[rank + k * size + count];
                }
        },
        columns_per_sum);
    for (std::size_t at = 0; at < of_threads.size(); at += width) {
        for (int k = 0; k < rank; ++k)
            totals[k] += static_cast<double>(of_threads[at + k]);
        for (std::size_t i = 0; i < n_known.size(); ++i)
            n_known[i] += of_threads[at + rank + i];
    }
}

// Draws some columns. Adds their sums to `sums`: of the draws, and for entries that are in no
// table, of their means and cumulative responsibilities.
KLNMF_OWN void draw_columns(std::int64_t begin, std::int64_t end, int rank,
                            const std::int64_t* counts, const double* exposures,
                            const double* totals, const ScaleTables& tables,
                            const GammaScales& scales, const std::uint8_t* is_fixed,
                            std::uint64_t seed, std::uint64_t sweep, double* H, double* means,
                            double* squares, double* sums) {
    const int n_scales = scales.n_scales;
    double scratch[ScaleTables::most_scales + 2];
    for (std::int64_t j = begin; j < end; ++j) {
        Draws draws(seed, sweep, static_cast<std::uint64_t>(j));
        for (int k = 0; k < rank; ++k) {
            const std::int64_t at = j * rank + k;
            means[at] = squares[at] = 0;
            if (H[at] == 0 || is_fixed[k])
                continue;
            const double exposure = exposures ? exposures[at] : totals[k];
            const double* entry = tables.known(k, counts[at]);
            if (!entry) {
                tables.fill(counts[at], exposure, scratch);
                entry = scratch;
                sums[rank + k] += entry[n_scales];
                for (int q = 0; q < n_scales; ++q)
                    sums[2 * rank + q] += entry[q];
            }
            const int s = place_of(draws.uniform(), entry, n_scales);
            H[at] = draws.gamma(scales.shape + static_cast<double>(counts[at])) /
                    tables.rate(exposure, s);
            means[at] = entry[n_scales];
            squares[at] = entry[n_scales + 1];
            sums[k] += H[at];
        }
    }
}

} // namespace

template <class T>
void take_sums(T* copies, std::int64_t n_copies, std::int64_t size, int n_threads,
               std::int64_t* total) {
    for_each_range(
        size, n_threads,
        [&](std::int64_t begin, std::int64_t end, int) {
            std::fill(total + begin, total + end, 0);
            for (std::int64_t copy = 0; copy < n_copies; ++copy)
                for (std::int64_t i = begin; i < end; ++i) {
                    total[i] += copies[copy * size + i];
                    copies[copy * size + i] = 0;
                }
        },
        2048);
}

template void take_sums(std::int32_t*, std::int64_t, std::int64_t, int, std::int64_t*);
template void take_sums(std::int64_t*, std::int64_t, std::int64_t, int, std::int64_t*);

void draw_components(std::int64_t n_columns, int rank, const std::int64_t* counts,
                     const double* exposures, const GammaScales& scales,
                     const std::uint8_t* is_fixed, std::uint64_t seed, std::uint64_t sweep,
                     int n_threads, double* H, double* masses, double* moments,
                     double* responsibilities) {
    const int n_scales = scales.n_scales, width = 2 * rank + n_scales;
    std::vector<double> totals(rank);
    std::vector<std::int64_t> n_known(rank * ScaleTables::size); // entries of tables, by count
    count_entries(n_columns, rank, counts, is_fixed, n_threads, H, totals, n_known);
    const ScaleTables tables(scales, totals, exposures != nullptr, n_threads);
    const std::int64_t n_blocks = (n_columns + columns_per_sum - 1) / columns_per_sum;
    std::vector<double> by_block(n_blocks * width);
    double *means = moments, *squares = moments + n_columns * rank;
    for_each_range(
        n_columns, n_threads,
        [&](std::int64_t begin, std::int64_t end, int) {
            draw_columns(begin, end, rank, counts, exposures, totals.data(), tables, scales,
                         is_fixed, seed, sweep, H, means, squares,
                         &by_block[begin / columns_per_sum * width]);
        },
        columns_per_sum);
    for (std::int64_t block = 1; block < n_blocks; ++block)
        for (int q = 0; q < width; ++q)
            by_block[q] += by_block[block * width + q];
    for (int k = 0; k < rank; ++k)
        for (int count = 0; count < ScaleTables::size; ++count) {
            const double* entry = tables.known(k, count);
            const std::int64_t n = n_known[k * ScaleTables::size + count];
            // Where a component has no counts at all, the entries for larger ones are NaN.
            if (!entry || n == 0)
                continue;
            by_block[rank + k] += static_cast<double>(n) * entry[n_scales];
            for (int q = 0; q < n_scales; ++q)
                by_block[2 * rank + q] += static_cast<double>(n) * entry[q];
        }
    const double* sums = by_block.data();
    for (int s = n_scales - 1; s >= 0; --s)
        responsibilities[s] = sums[2 * rank + s] - (s > 0 ? sums[2 * rank + s - 1] : 0.0);
    for (int k = 0; k < rank; ++k)
        masses[k] = is_fixed[k] ? 1.0 : sums[k];
    for_each_range(
        n_columns, n_threads,
        [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t j = begin; j < end; ++j)
                for (int k = 0; k < rank; ++k)
                    if (!is_fixed[k]) {
                        const std::int64_t at = j * rank + k;
                        const double mass = sums[rank + k];
                        H[at] /= sums[k];
                        means[at] /= mass;
                        squares[at] /= mass * mass;
                    }
        },
        columns_per_sum);
}

void keep_moments(std::int64_t n_columns, int rank, const double* moments, const KeptSums& sums,
                  int n_threads) {
    const std::int64_t size = n_columns * rank, width = rank + std::int64_t{rank} * rank;
    const auto add = [](double* to, const double* from, std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
            to[i] += from[i];
    };
    const auto add_products = [&](std::int64_t j) {
        double* of_column = sums.products + j * width;
        const double *mean = moments + j * rank, *from = sums.reference + j * rank;
        for (int k = 0; k < rank; ++k) {
            const double off = mean[k] - from[k];
            of_column[k] += off;
            for (int l = 0; l < rank; ++l)
                of_column[(k + 1) * rank + l] += off * (mean[l] - from[l]);
        }
    };
    for_each_range(
        n_columns, n_threads,
        [&](std::int64_t begin_column, std::int64_t end_column, int) {
            const std::int64_t begin = begin_column * rank, end = end_column * rank;
            add(sums.components, moments, begin, end);
            add(sums.components + size, moments + size, begin, end);
            add(sums.batch, moments, begin, end);
            if (sums.first_half)
                add(sums.first_half, moments, begin, end);
            for (std::int64_t j = begin_column; sums.products && j < end_column; ++j)
                add_products(j);
        },
        columns_per_sum);
}

} // namespace klnmf
