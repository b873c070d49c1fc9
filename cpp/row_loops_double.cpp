#include "row_loops.hpp"

namespace klnmf {

KLNMF_INSTANTIATE(double)

} // namespace klnmf
