// Rotary embedding of one token, and its entry in the cache.
#pragma once

#include "backend/backend.h"
#include "cpu/kernels.h"

namespace onward::cpu {

// Clips and normalises q, k and v of the slice's token as the arguments say, rotates q and k
// (half-split pairs, as Hugging Face weights expect; Su et al. 2021), all in place, and stores k
// and v in the token's block. Without k there is nothing to store.
void rotate_and_append_token(const RotateArgs& args, const CacheLayout& layout,
                             const SequenceSlice& slice, int64_t token, const Kernels& kernels);

}  // namespace onward::cpu
