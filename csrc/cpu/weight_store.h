// Packs a model's weights for the CPU kernels, whatever dtype the file holds. The layout is
// independent of the instruction set (cpu/kernels.h, LinearArgs).
#pragma once

#include <memory>

#include "backend/backend.h"

namespace onward::cpu {

std::unique_ptr<WeightStore> make_weight_store(int threads);

}  // namespace onward::cpu
