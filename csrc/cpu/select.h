// Finding a table of kernels by the name of its instruction set.
#pragma once

#include <string>
#include <vector>

#include "cpu/kernels.h"

namespace onward::cpu {

// The instruction sets that this machine can run, slowest first.
std::vector<std::string> available_names();

// The kernels of one of them. InvalidArgument, which starts with `where`, for any other name.
const Kernels& kernels_named(const char* where, const std::string& name);

}  // namespace onward::cpu
