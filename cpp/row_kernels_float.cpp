#include "row_kernels.hpp"

constinit const klnmf::RowKernels<float> klnmf::KLNMF_SET::rows_of_floats =
    klnmf::row_kernels_of_set<float>;
