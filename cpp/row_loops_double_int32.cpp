#include "row_loops.hpp"

namespace klnmf {

KLNMF_INSTANTIATE_PAIR(double, std::int32_t)

} // namespace klnmf
