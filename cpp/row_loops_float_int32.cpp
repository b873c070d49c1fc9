#include "row_loops.hpp"

namespace klnmf {

KLNMF_INSTANTIATE_PAIR(float, std::int32_t)
KLNMF_INSTANTIATE_MIXED(float, std::int32_t, double)

} // namespace klnmf
