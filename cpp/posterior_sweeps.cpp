#include "posterior_sweeps.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "parallel.hpp"
#include "random_draws.hpp"

namespace klnmf {
namespace {

constexpr std::int64_t rows_per_task = 16;
constexpr std::int64_t columns_per_sum = 256; // sums of columns are over blocks of this size

// log Gamma and its derivative, by Stirling's series from 8 on and the recursion below; std::lgamma
// writes to a variable that threads share.
double log_gamma(double x) {
    double below = 1;
    for (; x < 8; x += 1)
        below *= x;
    const double y = 1 / (x * x);
    return (x - 0.5) * std::log(x) - x + 0.91893853320467274 +
           (1.0 / 12 - y * (1.0 / 360 - y * (1.0 / 1260 - y / 1680))) / x - std::log(below);
}

double digamma(double x) {
    double below = 0;
    for (; x < 8; x += 1)
        below += 1 / x;
    const double y = 1 / (x * x);
    return std::log(x) - 0.5 / x - y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y / 240))) -
           below;
}

// log Gamma(a + v) - log Gamma(a) and psi(a + v) - psi(a) by the whole number v, for all classes at
// once and every component; the last "component" has the sums of the concentrations.
class RisingTables {
public:
    explicit RisingTables(const MixturePrior& prior)
        : n_classes_(prior.n_classes), a_((prior.rank + 1) * prior.n_classes),
          logs_(a_.size() * size), digammas_(a_.size() * size) {
        for (int k = 0; k <= prior.rank; ++k)
            for (int c = 0; c < n_classes_; ++c) {
                const double* of_class = prior.concentrations + c * prior.rank;
                double a = 0;
                for (int l = 0; l < prior.rank; ++l)
                    a += k == prior.rank || l == k ? of_class[l] : 0.0;
                a_[k * n_classes_ + c] = a;
                double log = 0, digamma = 0;
                for (int v = 0; v < size; ++v) {
                    logs_[at(k, v) + c] = log;
                    digammas_[at(k, v) + c] = digamma;
                    log += std::log(a + v);
                    digamma += 1 / (a + v);
                }
            }
    }

    double concentration(int c, int k) const { return a_[k * n_classes_ + c]; }

    // Adds the logarithms of all classes to `sums`, times a sign.
    void add_logs(int k, std::int64_t v, double sign, double* sums) const {
        if (v < size) {
            const double* logs = &logs_[at(k, v)];
            for (int c = 0; c < n_classes_; ++c)
                sums[c] += sign * logs[c];
        } else
            for (int c = 0; c < n_classes_; ++c) {
                const double a = concentration(c, k);
                sums[c] += sign * (log_gamma(a + static_cast<double>(v)) - log_gamma(a));
            }
    }

    double digamma_rise(int c, int k, std::int64_t v) const {
        if (v < size)
            return digammas_[at(k, v) + c];
        const double a = concentration(c, k);
        return digamma(a + static_cast<double>(v)) - digamma(a);
    }

private:
    static constexpr int size = 64;
    std::size_t at(int k, std::int64_t v) const { return (k * size + v) * n_classes_; }
    int n_classes_;
    std::vector<double> a_, logs_, digammas_;
};

// Number of the first of `n` rising sums above t; the last one if none is.
KLNMF_INLINE int place_of(double t, const double* sums, int n) {
    int place = 0;
    for (int k = 0; k < n - 1; ++k)
        place += sums[k] <= t;
    return place;
}

// Splits the counts of a row over the components: adds to `own` and to the counts by feature.
KLNMF_CLONES void split_row(const SampledRows& rows, std::int64_t row, const double* H, int rank,
                            Draws& draws, double* sums, std::int64_t* own,
                            std::int32_t* of_features) {
    const double* w = rows.W + row * rank;
    for (std::int64_t i = rows.indptr[row]; i < rows.indptr[row + 1]; ++i) {
        const std::int64_t start = static_cast<std::int64_t>(rows.indices[i]) * rank;
        const double* h = H + start;
        std::int32_t* of_feature = of_features + start;
        double sum = 0;
        for (int k = 0; k < rank; ++k)
            sums[k] = sum += w[k] * h[k];
        std::int32_t left = rows.counts[i];
        if (left <= 4 * rank + 16) {
            for (; left > 0; --left) {
                const int k = place_of(draws.uniform() * sum, sums, rank);
                ++own[k];
                ++of_feature[k];
            }
            continue;
        }
        for (int k = rank - 1; k >= 0 && left > 0; --k) {
            const double before = k > 0 ? sums[k - 1] : 0.0;
            const auto drawn =
                k > 0 ? static_cast<std::int32_t>(draws.binomial(left, 1 - before / sums[k]))
                      : left;
            own[k] += drawn;
            of_feature[k] += drawn;
            left -= drawn;
        }
    }
}

// The class of a row with these counts of components: pi_c DirichletMultinomial(N; a_c).
int draw_class(const MixturePrior& prior, const RisingTables& tables, const std::int64_t* own,
               std::int64_t total, Draws& draws, double* weights) {
    const int n = prior.n_classes;
    std::copy(prior.log_weights, prior.log_weights + n, weights);
    for (int k = 0; k < prior.rank; ++k)
        if (own[k] > 0)
            tables.add_logs(k, own[k], 1.0, weights);
    tables.add_logs(prior.rank, total, -1.0, weights);
    const double largest = *std::max_element(weights, weights + n);
    double sum = 0;
    for (int c = 0; c < n; ++c)
        weights[c] = sum += std::exp(weights[c] - largest);
    return place_of(draws.uniform() * sum, weights, n);
}

} // namespace

void sweep_rows(const SampledRows& rows, const double* H, std::int64_t n_columns,
                const MixturePrior& prior, std::uint64_t seed, std::uint64_t sweep, int n_threads,
                const SweepSums& sums) {
    const int rank = prior.rank, n_classes = prior.n_classes, width = rank + 2;
    const RisingTables tables(prior);
    const auto whole = [](double x) { return static_cast<std::int64_t>(x * whole_per_unit); };
    for_each_range(
        rows.n_rows, n_threads,
        [&](std::int64_t begin, std::int64_t end, int thread) {
            std::vector<double> scratch(std::max(rank, n_classes));
            std::vector<std::int64_t> own(rank);
            std::int32_t* of_features = sums.of_features + thread * n_columns * rank;
            std::int64_t* of_classes = sums.of_classes + thread * n_classes * width;
            for (std::int64_t row = begin; row < end; ++row) {
                if (rows.indptr[row] == rows.indptr[row + 1])
                    continue;
                Draws draws(seed, sweep, static_cast<std::uint64_t>(row));
                std::fill(own.begin(), own.end(), 0);
                split_row(rows, row, H, rank, draws, scratch.data(), own.data(), of_features);
                std::int64_t total = 0;
                for (const std::int64_t count : own)
                    total += count;
                const int c = draw_class(prior, tables, own.data(), total, draws, scratch.data());
                double* w = rows.W + row * rank;
                std::int64_t* of_class = of_classes + c * width;
                for (int k = 0; k < rank; ++k) {
                    w[k] = draws.gamma(tables.concentration(c, k) + static_cast<double>(own[k]));
                    of_class[k] += whole(tables.digamma_rise(c, k, own[k]));
                }
                of_class[rank] += whole(tables.digamma_rise(c, rank, total));
                ++of_class[rank + 1];
                if (!rows.means)
                    continue;
                const double sum = tables.concentration(c, rank) + static_cast<double>(total);
                for (int k = 0; k < rank; ++k) {
                    const double part = tables.concentration(c, k) + static_cast<double>(own[k]);
                    rows.means[row * rank + k] += part / sum;
                    rows.squares[row * rank + k] += part / sum * (part + 1) / (sum + 1);
                }
            }
        },
        rows_per_task);
}

namespace {

// What the scales say of entries with a count K when the component has T counts: cumulative
// responsibilities omega_s NB(K; shape, mean mu_s T), and the mean and second moment of the entry.
class ScaleTables {
public:
    ScaleTables(const GammaScales& scales, int rank, const std::vector<double>& totals,
                int n_threads)
        : scales_(scales), width_(scales.n_scales + 2), logs_(2 * rank * scales.n_scales),
          totals_(totals), entries_(static_cast<std::size_t>(rank) * size * width_) {
        for (int k = 0; k < rank; ++k)
            for (int s = 0; s < scales.n_scales; ++s) {
                const double t = scales.means[s] * (totals[k] + 1), kappa = scales.shape;
                logs_[2 * (k * scales.n_scales + s)] =
                    std::log(scales.weights[s]) + kappa * std::log(kappa / (kappa + t));
                logs_[2 * (k * scales.n_scales + s) + 1] = std::log(t / (kappa + t));
            }
        for_each_range(
            rank, n_threads,
            [&](std::int64_t begin, std::int64_t end, int) {
                for (std::int64_t k = begin; k < end; ++k)
                    for (int count = 0; count < size; ++count)
                        fill(static_cast<int>(k), count, &entries_[(k * size + count) * width_]);
            },
            1);
    }

    int width() const { return width_; }
    double rate(int k, int s) const { return scales_.shape / scales_.means[s] + totals_[k]; }

    // The entry for a count: from the table, or in `scratch`.
    const double* entry(int k, std::int64_t count, double* scratch) const {
        if (count < size)
            return &entries_[(static_cast<std::size_t>(k) * size + count) * width_];
        fill(k, count, scratch);
        return scratch;
    }

private:
    static constexpr int size = 64;

    void fill(int k, std::int64_t count, double* entry) const {
        const int n = scales_.n_scales;
        const double *logs = &logs_[2 * k * n], shape = scales_.shape + static_cast<double>(count);
        double largest = -INFINITY;
        for (int s = 0; s < n; ++s) {
            entry[s] = logs[2 * s] + static_cast<double>(count) * logs[2 * s + 1];
            largest = std::max(largest, entry[s]);
        }
        double sum = 0, mean = 0, square = 0;
        for (int s = 0; s < n; ++s) {
            const double weight = std::exp(entry[s] - largest), part = shape / rate(k, s);
            entry[s] = sum += weight;
            mean += weight * part;
            square += weight * part * (shape + 1) / rate(k, s);
        }
        for (int s = 0; s < n; ++s)
            entry[s] /= sum;
        entry[n] = mean / sum;
        entry[n + 1] = square / sum;
    }

    const GammaScales& scales_;
    int width_;
    std::vector<double> logs_;
    const std::vector<double>& totals_;
    std::vector<double> entries_;
};

} // namespace

void draw_components(std::int64_t n_columns, int rank, const std::int64_t* counts,
                     const GammaScales& scales, const std::uint8_t* is_fixed, std::uint64_t seed,
                     std::uint64_t sweep, int n_threads, double* H, double* moments,
                     double* responsibilities) {
    const int n_scales = scales.n_scales, width = 2 * rank + n_scales;
    std::vector<double> totals(rank);
    for (std::int64_t i = 0; i < n_columns * rank; ++i)
        totals[i % rank] += static_cast<double>(counts[i]);
    const ScaleTables tables(scales, rank, totals, n_threads);
    const std::int64_t n_blocks = (n_columns + columns_per_sum - 1) / columns_per_sum;
    // By block: the sums of the draws, those of their means, and the cumulative responsibilities.
    std::vector<double> by_block(n_blocks * width);
    double *means = moments, *squares = moments + n_columns * rank;
    for_each_range(
        n_columns, n_threads,
        [&](std::int64_t begin, std::int64_t end, int) {
            std::vector<double> scratch(tables.width());
            double* sums = &by_block[begin / columns_per_sum * width];
            for (std::int64_t j = begin; j < end; ++j) {
                Draws draws(seed, sweep, static_cast<std::uint64_t>(j));
                for (int k = 0; k < rank; ++k) {
                    const std::int64_t at = j * rank + k;
                    means[at] = squares[at] = 0;
                    if (H[at] == 0 || is_fixed[k])
                        continue;
                    const double* entry = tables.entry(k, counts[at], scratch.data());
                    const int s = place_of(draws.uniform(), entry, n_scales);
                    H[at] = draws.gamma(scales.shape + static_cast<double>(counts[at])) /
                            tables.rate(k, s);
                    means[at] = entry[n_scales];
                    squares[at] = entry[n_scales + 1];
                    sums[k] += H[at];
                    sums[rank + k] += means[at];
                    for (int q = 0; q < n_scales; ++q)
                        sums[2 * rank + q] += entry[q];
                }
            }
        },
        columns_per_sum);
    for (std::int64_t block = 1; block < n_blocks; ++block)
        for (int q = 0; q < width; ++q)
            by_block[q] += by_block[block * width + q];
    const double* sums = by_block.data();
    for (int s = n_scales - 1; s >= 0; --s)
        responsibilities[s] = sums[2 * rank + s] - (s > 0 ? sums[2 * rank + s - 1] : 0.0);
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

} // namespace klnmf
