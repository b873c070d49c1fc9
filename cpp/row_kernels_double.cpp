#include "row_kernels.hpp"

constinit const klnmf::RowKernels<double> klnmf::KLNMF_SET::rows_of_doubles =
    klnmf::row_kernels_of_set<double>;
