#include "row_loops.hpp"

namespace klnmf {

KLNMF_INSTANTIATE_PAIR(float, std::int64_t)
KLNMF_INSTANTIATE_MIXED(float, std::int64_t, double)

} // namespace klnmf
