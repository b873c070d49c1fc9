// The sets of kernels that were compiled, and which of them this processor can run.
#pragma once

#include <string>
#include <vector>

namespace klnmf {

// Chooses the highest set that this processor can run, or the one with this name, unless it is
// empty. Throws std::invalid_argument if there is no such set or the processor cannot run it.
void choose_instruction_set(const std::string& name);

// The set in use: its name and what people call it.
std::string instruction_set();

// Names of the sets that this processor can run, from the lowest to the highest.
std::vector<std::string> usable_instruction_sets();

} // namespace klnmf
