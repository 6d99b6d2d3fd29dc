// Packs a model's weights of any file dtype for the CPU kernels. The layout is independent of the
// instruction set (cpu/linear_args.h).
#pragma once

#include <memory>

#include "backend/backend.h"

namespace onward::cpu {

std::unique_ptr<WeightStore> make_weight_store(int threads);

}  // namespace onward::cpu
