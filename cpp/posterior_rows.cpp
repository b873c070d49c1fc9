#include "posterior_sweeps.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "parallel.hpp"
#include "random_draws.hpp"
#include "vector_lanes.hpp"

namespace klnmf {
namespace {

constexpr std::int64_t rows_per_task = 16;
constexpr std::int64_t columns_per_task = 256;
constexpr double whole_per_unit = 0x1p30; // of sums of digamma differences, in whole numbers
constexpr double largest_whole = 0x1p62;

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

constexpr int lanes = Lanes<float>::count;
constexpr std::int64_t ahead = 8; // nonzeros
using FloatLanes = Lanes<float>::Vector;

// Sums of products w_k h_k in float, for draws with these probabilities. Component k is in lane
// k % 8 of block k / 8: sums run over the blocks in every lane, then over the lanes, so that a draw
// is two short counts instead of a search along k.
class Split {
public:
    Split(const float* w, const float* h, int n_blocks, float* sums)
        : n_blocks_(n_blocks), sums_(sums) {
        FloatLanes sum{};
        for (int b = 0; b < n_blocks; ++b)
            store(sums + b * lanes, sum += load(w + b * lanes) * load(h + b * lanes));
        const FloatLanes zero{};
        sum += __builtin_shufflevector(zero, sum, 0, 8, 9, 10, 11, 12, 13, 14);
        sum += __builtin_shufflevector(zero, sum, 0, 0, 8, 9, 10, 11, 12, 13);
        sum += __builtin_shufflevector(zero, sum, 0, 0, 0, 0, 8, 9, 10, 11);
        rising_ = sum;
    }

    KLNMF_INLINE double total() const { return rising_[lanes - 1]; }

    // The component at a share of the total.
    KLNMF_INLINE int component_at(double share) const {
        constexpr float below = 0x1.fffffcp-1f; // rounding must not lead past the end
        const float t = std::min(static_cast<float>(share), below) * rising_[lanes - 1];
        const Lanes<float>::Mask passed = rising_ <= FloatLanes{} + t;
        const Lanes<float>::Mask four =
            passed + __builtin_shufflevector(passed, passed, 4, 5, 6, 7, 0, 1, 2, 3);
        const int lane =
            std::min(-((four[0] + four[1]) + (four[2] + four[3])), std::int32_t{lanes - 1});
        if (n_blocks_ == 1)
            return lane;
        float edges[lanes + 1] = {};
        store(edges + 1, rising_);
        const float rest = std::min(t - edges[lane], below * sums_[(n_blocks_ - 1) * lanes + lane]);
        int block = 0;
        for (int b = 0; b < n_blocks_ - 1; ++b)
            block += sums_[b * lanes + lane] <= rest;
        return block * lanes + lane;
    }

private:
    int n_blocks_;
    const float* sums_;
    FloatLanes rising_;
};

// What a thread needs for a row.
struct SweepScratch {
    SweepScratch(int rank, int n_classes)
        : n_blocks((rank + lanes - 1) / lanes), w(n_blocks * lanes), sums(n_blocks * lanes),
          weights(n_classes), exposure(rank), own(rank) {}
    int n_blocks;
    std::vector<float> w, sums;
    std::vector<double> weights, exposure;
    std::vector<std::int64_t> own;
    std::vector<double> factors; // of the cells of a row, nonzeros first
};

// Adds the components of the counts of a cell to `own` and to the counts of its feature.
KLNMF_INLINE void split_cell(const Split& split, const float* w, const float* h, int rank,
                             std::int32_t left, Draws& draws, std::int64_t* own,
                             std::int32_t* of_feature) {
    if (left <= 4 * rank + 16) {
        for (; left > 0; --left) {
            const int k = std::min(split.component_at(draws.uniform()), rank - 1);
            ++own[k];
            ++of_feature[k];
        }
        return;
    }
    double rest = 0;
    for (int k = 0; k < rank; ++k)
        rest += static_cast<double>(w[k]) * h[k];
    for (int k = 0; k < rank && left > 0; ++k) {
        const double part = static_cast<double>(w[k]) * h[k];
        const auto drawn = static_cast<std::int32_t>(
            k + 1 < rank ? draws.binomial(left, std::min(part / rest, 1.0)) : left);
        own[k] += drawn;
        of_feature[k] += drawn;
        left -= drawn;
        rest = std::max(rest - part, part * 1e-300);
    }
}

KLNMF_OWN void split_row(const SampledRows& rows, std::int64_t row, const float* H, int rank,
                         Draws& draws, SweepScratch& scratch, std::int32_t* of_features) {
    const int n_blocks = scratch.n_blocks;
    const std::int64_t end = rows.indptr[row + 1];
    for (std::int64_t i = rows.indptr[row]; i < end; ++i) {
        // The rows of H and of the counts are where caches do not expect them.
        if (i + ahead < end) {
            const auto next = static_cast<std::int64_t>(rows.indices[i + ahead]);
            for (int b = 0; b < n_blocks; b += 2) {
                __builtin_prefetch(H + (next * n_blocks + b) * lanes);
                __builtin_prefetch(of_features + next * rank + b * lanes, 1);
            }
        }
        const auto j = static_cast<std::int64_t>(rows.indices[i]);
        const float* h = H + j * n_blocks * lanes;
        const Split split(scratch.w.data(), h, n_blocks, scratch.sums.data());
        split_cell(split, scratch.w.data(), h, rank, rows.counts[i], draws, scratch.own.data(),
                   of_features + j * rank);
    }
}

// Calls visit(j, x, is_listed) for the cells of a row that have factors of their own: nonzeros,
// zeros in listed columns, and with x = -1 the missing cells of columns not listed.
template <class Visit>
KLNMF_INLINE void visit_cells(const SampledRows& rows, const CellFactors& factors, std::int64_t row,
                              Visit visit) {
    const std::int64_t* hidden = nullptr;
    const std::int64_t* end_hidden = nullptr;
    if (factors.missing_starts) {
        hidden = factors.missing + factors.missing_starts[row];
        end_hidden = factors.missing + factors.missing_starts[row + 1];
    }
    const std::int32_t *listed = factors.listed, *end_listed = listed + factors.n_listed;
    std::int64_t i = rows.indptr[row];
    const std::int64_t end = rows.indptr[row + 1];
    constexpr std::int64_t none = INT64_MAX;
    for (;;) {
        const std::int64_t at = i < end ? rows.indices[i] : none;
        const std::int64_t in_list = listed < end_listed ? *listed : none;
        const std::int64_t unseen = hidden < end_hidden ? *hidden : none;
        const std::int64_t j = std::min(std::min(at, in_list), unseen);
        if (j == none)
            return;
        listed += in_list == j;
        hidden += unseen == j;
        if (unseen == j) {
            if (in_list != j)
                visit(j, -1, false);
        } else
            visit(j, at == j ? rows.counts[i] : 0, in_list == j);
        i += at == j;
    }
}

// Splits a row with factors of cells, draws these, and sets scratch.exposure to the sums of factors
// times h.
KLNMF_OWN void split_row_with_factors(const SampledRows& rows, const CellFactors& factors,
                                      std::int64_t row, const float* H, int rank, Draws& draws,
                                      SweepScratch& scratch, std::int32_t* of_features) {
    const int n_blocks = scratch.n_blocks;
    const float* w = scratch.w.data();
    double* exposure = scratch.exposure.data();
    for (int k = 0; k < rank; ++k) {
        double sum = factors.sums[k];
        for (int l = 0; l < rank; ++l)
            sum -= factors.gram[k * rank + l] * w[l];
        exposure[k] = sum;
    }
    scratch.factors.clear();
    visit_cells(rows, factors, row, [&](std::int64_t j, std::int32_t x, bool is_listed) {
        const float* h = H + j * n_blocks * lanes;
        const Split split(w, h, n_blocks, scratch.sums.data());
        const double alpha = factors.alpha[j], y = split.total();
        if (x > 0)
            split_cell(split, w, h, rank, x, draws, scratch.own.data(), of_features + j * rank);
        double factor = x < 0 ? 0.0 : 1.0;
        if (x >= 0 && alpha > 1e-6)
            factor = draws.gamma(1 / alpha + x) / (1 / alpha + y);
        scratch.factors.push_back(factor);
        const double beyond = is_listed ? factor : factor - 1 + alpha * y;
        for (int k = 0; k < rank; ++k)
            exposure[k] += beyond * h[k];
    });
}

// Adds factors times the new w to the exposures of the features.
KLNMF_OWN void expose_features(const SampledRows& rows, const CellFactors& factors,
                               std::int64_t row, const float* H, int rank, SweepScratch& scratch,
                               std::int64_t* exposures) {
    const double* w = rows.W + row * rank;
    const double* factor = scratch.factors.data();
    for (int k = 0; k < rank; ++k)
        scratch.w[k] = static_cast<float>(w[k]);
    visit_cells(rows, factors, row, [&](std::int64_t j, std::int32_t, bool is_listed) {
        double beyond = *factor++;
        if (!is_listed) {
            const float* h = H + j * scratch.n_blocks * lanes;
            const Split split(scratch.w.data(), h, scratch.n_blocks, scratch.sums.data());
            beyond += factors.alpha[j] * split.total() - 1;
        }
        std::int64_t* of_feature = exposures + j * rank;
        const double scaled = beyond * factors.unit;
        for (int k = 0; k < rank; ++k)
            of_feature[k] +=
                static_cast<std::int64_t>(std::clamp(scaled * w[k], -largest_whole, largest_whole));
    });
}

// The class of a row with these counts of components: pi_c DirichletMultinomial(N; a_c), or with
// rates of prior rate b and exposures B, pi_c prod_k Gamma(N + a) / Gamma(a) (b / (b + B))^a.
int draw_class(const MixturePrior& prior, const RisingTables& tables, SweepScratch& scratch,
               std::int64_t total, double prior_rate, Draws& draws) {
    const int n = prior.n_classes;
    double* weights = scratch.weights.data();
    std::copy(prior.log_weights, prior.log_weights + n, weights);
    for (int k = 0; k < prior.rank; ++k)
        if (scratch.own[k] > 0)
            tables.add_logs(k, scratch.own[k], 1.0, weights);
    if (prior_rate > 0) {
        for (int k = 0; k < prior.rank; ++k) {
            const double log = std::log(prior_rate / (prior_rate + scratch.exposure[k]));
            for (int c = 0; c < n; ++c)
                weights[c] += tables.concentration(c, k) * log;
        }
    } else
        tables.add_logs(prior.rank, total, -1.0, weights);
    const double largest = *std::max_element(weights, weights + n);
    double sum = 0;
    for (int c = 0; c < n; ++c)
        weights[c] = sum += std::exp(weights[c] - largest);
    return place_of(draws.uniform() * sum, weights, n);
}

// Adds the moments of the proportions: of a Dirichlet distribution given the counts, or those of
// the drawn rates.
void add_moments(const SampledRows& rows, std::int64_t row, const RisingTables& tables, int c,
                 const SweepScratch& scratch, std::int64_t total, bool has_factors) {
    const int rank = static_cast<int>(scratch.own.size());
    const double* w = rows.W + row * rank;
    double sum = tables.concentration(c, rank) + static_cast<double>(total);
    if (has_factors) {
        sum = 0;
        for (int k = 0; k < rank; ++k)
            sum += w[k];
    }
    for (int k = 0; k < rank; ++k) {
        const double part =
            has_factors ? w[k] : tables.concentration(c, k) + static_cast<double>(scratch.own[k]);
        const double mean = part / sum;
        rows.means[row * rank + k] += mean;
        rows.squares[row * rank + k] += mean * (has_factors ? mean : (part + 1) / (sum + 1));
    }
}

constexpr double least_exposure = 0.02; // where the means of factors to first order are too small

} // namespace

void sweep_rows(const SampledRows& rows, const double* H, std::int64_t n_columns,
                const MixturePrior& prior, const CellFactors* factors, std::uint64_t seed,
                std::uint64_t sweep, int n_threads, const SweepSums& sums) {
    const int rank = prior.rank, n_classes = prior.n_classes, width = rank + 2;
    const RisingTables tables(prior);
    const auto whole = [](double x) { return static_cast<std::int64_t>(x * whole_per_unit); };
    const std::int64_t padded = SweepScratch(rank, n_classes).n_blocks * lanes;
    std::vector<float> narrow(n_columns * padded);
    for_each_range(
        n_columns, n_threads,
        [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t j = begin; j < end; ++j)
                for (int k = 0; k < rank; ++k)
                    narrow[j * padded + k] = static_cast<float>(H[j * rank + k]);
        },
        columns_per_task);
    // Made here: a task must not allocate.
    std::vector<SweepScratch> scratches(std::max(n_threads, 1), SweepScratch(rank, n_classes));
    for (SweepScratch& scratch : scratches)
        scratch.factors.reserve(factors ? n_columns : 0);
    for_each_range(
        rows.n_rows, n_threads,
        [&](std::int64_t begin, std::int64_t end, int thread) {
            SweepScratch& scratch = scratches[thread];
            std::vector<std::int64_t>& own = scratch.own;
            std::int32_t* of_features = sums.of_features + thread * n_columns * rank;
            std::int64_t* of_classes = sums.of_classes + thread * n_classes * width;
            for (std::int64_t row = begin; row < end; ++row) {
                if (rows.indptr[row] == rows.indptr[row + 1])
                    continue;
                Draws draws(seed, sweep, static_cast<std::uint64_t>(row));
                std::fill(own.begin(), own.end(), 0);
                double* w = rows.W + row * rank;
                double prior_rate = 0, sum = 0;
                for (int k = 0; k < rank; ++k) {
                    const double scaled = factors ? w[k] * factors->scales[k] : w[k];
                    scratch.w[k] = static_cast<float>(scaled);
                    sum += scaled;
                }
                if (factors) {
                    // b ~ Gamma(sum of a) / sum of w, as it has no scale of its own.
                    prior_rate =
                        draws.gamma(tables.concentration(factors->classes[row], rank)) / sum;
                    split_row_with_factors(rows, *factors, row, narrow.data(), rank, draws, scratch,
                                           of_features);
                    for (double& exposure : scratch.exposure)
                        exposure = std::max(exposure, least_exposure);
                } else
                    split_row(rows, row, narrow.data(), rank, draws, scratch, of_features);
                std::int64_t total = 0;
                for (const std::int64_t count : own)
                    total += count;
                const int c = draw_class(prior, tables, scratch, total, prior_rate, draws);
                std::int64_t* of_class = of_classes + c * width;
                for (int k = 0; k < rank; ++k) {
                    w[k] = draws.gamma(tables.concentration(c, k) + static_cast<double>(own[k]));
                    if (factors)
                        w[k] /= prior_rate + scratch.exposure[k];
                    of_class[k] += whole(tables.digamma_rise(c, k, own[k]));
                }
                of_class[rank] += whole(tables.digamma_rise(c, rank, total));
                ++of_class[rank + 1];
                if (factors) {
                    factors->classes[row] = c;
                    expose_features(rows, *factors, row, narrow.data(), rank, scratch,
                                    factors->exposures + thread * n_columns * rank);
                }
                if (rows.means)
                    add_moments(rows, row, tables, c, scratch, total, factors != nullptr);
            }
        },
        rows_per_task);
}

} // namespace klnmf
