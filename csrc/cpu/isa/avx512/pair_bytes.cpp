// The byte kernels for AVX-512 alone, with its products of pairs of bytes.
#include "cpu/isa/avx512/parts.h"

#if defined(ONWARD_AVX512)

#include <immintrin.h>

namespace onward::cpu::avx512 {
namespace {

// clang-format off
#include "cpu/isa/avx512/lanes.inl"
#include "cpu/isa/avx512/codes.inl"
#include "cpu/isa/avx512/pairs.inl"
#include "cpu/isa/templates/dots_pairs.inl"
#include "cpu/isa/templates/byte_table.inl"
// clang-format on

}  // namespace

const ByteKernels* pair_byte_kernels() { return &kByteKernels; }

}  // namespace onward::cpu::avx512

#else

const onward::cpu::ByteKernels* onward::cpu::avx512::pair_byte_kernels() { return nullptr; }

#endif
