#include "row_loops.hpp"

namespace klnmf {

KLNMF_INSTANTIATE_PAIR(double, std::int64_t)

} // namespace klnmf
