#include "row_loops.hpp"

namespace klnmf {

KLNMF_INSTANTIATE(float)

} // namespace klnmf
