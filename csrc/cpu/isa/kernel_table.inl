// The kernels of an instruction set that is described by sixteen-float Lanes and sixteen 32-bit
// Words, and their table. Included last inside the anonymous namespace of each such file, which has
// defined what linear_tiles.inl and group_tiles.inl ask for.

// Each builds on the ones before.
// clang-format off
#include "cpu/isa/linear_tiles.inl"
#include "cpu/isa/group_tiles.inl"
#include "cpu/isa/row_kernels.inl"
#include "cpu/isa/attend_tiles.inl"
#include "cpu/isa/attend_spans.inl"
#include "cpu/isa/scan_kernels.inl"
#include "cpu/isa/hadamard.inl"
#include "cpu/isa/attend_codes.inl"
#include "cpu/isa/attend_units.inl"
#include "cpu/isa/encode_kernels.inl"
// clang-format on

constexpr Kernels kernel_table(const char* name) {
  return {name,
          linear_f32,
          linear_f16,
          linear_bf16,
          linear_q8_0,
          linear_q4_0,
          linear_q4_1,
          attend_f32,
          attend_f16,
          attend_bf16,
          merge_spans,
          attend_coded_f32,
          attend_coded_f16,
          attend_coded_bf16,
          merge_units,
          rms_norm,
          silu_mul,
          round_bf16,
          round_f16,
          quantize,
          hadamard,
          inverse_hadamard,
          hadamard_lanes,
          widen_f16,
          widen_bf16,
          encode_int8,
          encode_q4_0,
          encode_turbo<Turbo4>,
          encode_turbo<Turbo3>,
          encode_turbo<Turbo2>,
          kScans,
          probe_read,
          probe_f32,
          probe_bf16,
          probe_int8};
}
