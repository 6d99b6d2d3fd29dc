// The kernels for 64-bit Arm processors, in parts that the tables of select.cpp combine.
#pragma once

#include "cpu/isa/templates/exact_tiles.h"
#include "cpu/kernels.h"

#if defined(__aarch64__) && defined(__ARM_NEON)
#define ONWARD_NEON
#endif

namespace onward::cpu::neon {

// Null where the compiler cannot target it.
const FloatKernels* float_kernels();
const Bf16Kernels* bf16_kernels();
const ByteKernels* widening_byte_kernels();  // every 64-bit Arm processor
const ByteKernels* dot_byte_kernels();       // with the dot products of Armv8.2 and later

// Where float_kernels() is not null: the tiles of attention for each dtype of the cache.
extern const ExactTiles kExactF32;
extern const ExactTiles kExactF16;
extern const ExactTiles kExactBf16;

}  // namespace onward::cpu::neon
