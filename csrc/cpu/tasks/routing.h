// The choice of experts for one token, in plain float arithmetic: the same on every instruction
// set.
#pragma once

#include <cstdint>

#include "backend/routing.h"
#include "cpu/kernels.h"

namespace onward::cpu {

constexpr int64_t kMostExperts = 4096;

// logits, correction: (routing.experts); correction may be null. Writes routing.chosen experts in
// ascending order. A NaN among the logits makes every weight a NaN.
void choose_experts(const Routing& routing, const float* logits, const float* correction,
                    ChosenExpert* chosen);

}  // namespace onward::cpu
