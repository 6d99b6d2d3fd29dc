// Codes the keys and values of one head of one block, as cpu/coded_attend_args.h describes, with
// the encoding kernels.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "base/dtype.h"
#include "cpu/kernels.h"

namespace onward::cpu {

// Converts n stored elements to floats; n is a multiple of kLane.
void widen(const Kernels& kernels, DType dtype, const void* x, int64_t n, float* y);

// The centre of a layer's keys of one head (cpu/coded_attend_args.h). keys: in block 0, (head_dim, 16).
void key_centre(const Kernels& kernels, const CacheLayout& layout, int64_t layer, const void* keys,
                float* centre);

// Codes one layer and kv head of a block: keys and values.
void encode_head(const Kernels& kernels, const CacheLayout& layout, int64_t layer, int64_t kv_head,
                 const BlockEncoding& block);

}  // namespace onward::cpu
