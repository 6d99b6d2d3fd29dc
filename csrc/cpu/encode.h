// Codes the keys and values of one head of one block: what cpu/kernels.h says of coded blocks, put
// together out of its kernels. Moves bytes and knows the layout of a block; knows nothing of
// threads, nor of how a code is found.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "base/dtype.h"
#include "cpu/kernels.h"

namespace onward::cpu {

// Whether vectors of a codec are rotated, and keys taken relative to the centre.
inline bool is_rotated(KvCodec codec) { return codec != KvCodec::exact && codec != KvCodec::q4_0; }

// n elements as block stores them; n is a multiple of kLane.
void widen(const Kernels& kernels, DType dtype, const void* x, int64_t n, float* y);

// The centre of a head's keys (cpu/kernels.h), of its keys in block 0, (head_dim, 16).
void key_centre(const Kernels& kernels, const CacheLayout& layout, const void* keys, float* centre);

// One layer and kv head of a block, both sides.
void encode_head(const Kernels& kernels, const CacheLayout& layout, int64_t layer, int64_t kv_head,
                 const BlockEncoding& block);

}  // namespace onward::cpu
