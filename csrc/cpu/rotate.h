// Rotary embedding of one token and its entry in the cache. Plain code: it touches each value once,
// and is the same on every instruction set.
#pragma once

#include "backend/backend.h"

namespace onward::cpu {

using RmsNorm = void (*)(const float* x, const float* weight, float eps, int64_t n, float* y);

// Normalises (where the family does), rotates q and k of the slice's token in place (half-split
// pairs, as Hugging Face weights expect; Su et al. 2021) and stores k and v in the token's block.
void rotate_and_append_token(const RotateArgs& args, const CacheLayout& layout,
                             const SequenceSlice& slice, int64_t token, RmsNorm rms_norm);

}  // namespace onward::cpu
