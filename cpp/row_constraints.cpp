#include "row_constraints.hpp"

namespace klnmf {

template <class T>
double observed_sum(const RowJob<T>& job, std::int64_t k, int q, std::int64_t first,
                    const std::int64_t* missing, std::int64_t count) {
    const std::int64_t size = job.constraints.sizes[q];
    const bool is_last = q == job.constraints.n_sizes - 1;
    double whole = 0, in_part = 0;
    for (std::int64_t j = first, p = 0; j < first + size; ++j) {
        const std::int64_t begin = p;
        while (p < count && missing[p] == j)
            ++p;
        const double entry = job.fixed.row(j)[k];
        if (p == begin)
            whole += entry;
        else if (!is_last && entry > 0)
            in_part +=
                entry * observed_sum(job, k, q + 1, first + size,
                                     missing + job.constraints.missing_stride + begin, p - begin);
    }
    if (!is_last && whole > 0)
        whole *= observed_sum(job, k, q + 1, first + size, missing, 0);
    return whole + in_part;
}

template double observed_sum(const RowJob<float>&, std::int64_t, int, std::int64_t,
                             const std::int64_t*, std::int64_t);
template double observed_sum(const RowJob<double>&, std::int64_t, int, std::int64_t,
                             const std::int64_t*, std::int64_t);

} // namespace klnmf
