// Passes over the nonzeros of a sample that look for components to merge or to add, see
// klnmf.solvers.swaps. All in double, each sum in one order: the number of threads changes no bit.
#pragma once

#include <cstdint>

namespace klnmf {

// Rows of nonzeros v with the columns of each of the other modes; those of mode q are from
// indices + q * nnz on. `y` is the model at the nonzeros, where it is known.
struct SampledNonzeros {
    std::int64_t n_rows, nnz;
    const std::int64_t* indptr;
    const std::int32_t* indices;
    int n_others;
    const double *v, *y;
};

// model_i = sum_k W_k h_ik, where h_ik is the product of the entries of column k of H at nonzero i.
void products_at_nonzeros(const SampledNonzeros& x, const double* W, const double* H, int rank,
                          int n_threads, double* model);

// v_i log(1 + max(d_i / y_i, smallest)), where d is the sum of `n_terms` components. Component t
// has the entries w + t * n_rows of the rows and h + t * n_columns of the columns.
void change_of_logarithms(const SampledNonzeros& x, const double* w, const double* h,
                          std::int64_t n_columns, int n_terms, double smallest, int n_threads,
                          double* terms);

// For each of some components u h next to the model: sums of v / (y + u h), times the component at
// the nonzero without the entry of one mode. They are summed over each row if `mode` is -1, and
// over each column of the mode otherwise. Component t begins at u + t * n_rows, h + t * n_columns
// and sums + t * n_rows, or sums + t * n_columns.
void ratio_sums(const SampledNonzeros& x, const double* u, const double* h, std::int64_t n_columns,
                int n_components, int mode, int n_threads, double* sums);

// products_jk = sum_i sqrt(F_ij / sums_j) sqrt(F_ik / sums_k) for F of n_rows x rank, over the rows
// in order; roots, of the size of F, is for the factors.
void products_of_roots(const double* F, std::int64_t n_rows, int rank, const double* sums,
                       int n_threads, double* roots, double* products);

} // namespace klnmf
