// The CPU backend: the verbs of backend.h over the kernel table of the selected instruction set.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace onward::cpu {

// InvalidArgument when threads is below 1, or ONWARD_CPU_ISA names an instruction set that is
// unknown or cannot run here.
std::unique_ptr<Backend> make_backend(int threads);

}  // namespace onward::cpu
