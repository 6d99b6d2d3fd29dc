// The CPU kernels: the inner loops of the backend, one table for each instruction set (cpu/isa).
// Only plain types and no function bodies: the linker keeps one copy of a shared inline function,
// and the copy of a file that is compiled for AVX-512 would then run on every processor.
//
// Every instruction set obeys these rules, so that results do not depend on batch, threads, chunks
// or cache:
//   * float32 results are bit-identical across instruction sets. The generic one is the reference.
//   * An output of a matrix product is ONE chain of fused multiply-adds over k in ascending order,
//     starting from +0, for any number of rows. Bias and residual are added after the chain.
//   * A sum along a row runs in 16 lanes (element i goes to lane i % 16, ascending i), and lanes
//     fold 16 -> 8 -> 4 -> 2 -> 1 by adding lane j + width/2 to lane j.
// Rows are padded: every row stride and every width is a multiple of kLane. Padding columns hold 0.
#pragma once

#include <cstdint>

#include "backend/activation.h"
#include "backend/kv_codecs.h"
#include "backend/row_scans.h"
#include "cpu/attend_args.h"
#include "cpu/coded_attend_args.h"
#include "cpu/linear_args.h"

namespace onward::cpu {

// A table has three parts, by what multiplies: an extension of an instruction set brings one new
// part, and its table takes the others from the set that it extends (select.cpp).

// The inner values of an MLP (backend/activation.h).
struct ActivateArgs {
  Gate gate;
  const float* parameters;  // of the activation, or null
  const float* x;           // (n): the gate, or the only product
  const float* up;          // (n), or null if not gated
  int64_t n;                // a multiple of kLane
  float* y;                 // (n); may be x or up
};

// Everything that needs float arithmetic only.
struct FloatKernels {
  // Matrix products, by the dtype of the weights.
  void (*linear_f32)(const LinearArgs&);
  void (*linear_f16)(const LinearArgs&);
  // Attention, by the dtype of exact keys and values.
  void (*attend_f32)(const AttendArgs&);
  void (*attend_f16)(const AttendArgs&);
  void (*attend_bf16)(const AttendArgs&);
  void (*merge_spans)(const AttendArgs&);  // overwrites the states

  // y[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) * weight[i], i < n. y may be x.
  // (Zhang & Sennrich 2019)
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y);
  // y[i] = (x[i] - mean) * (1 / sqrt(variance + eps)) * weight[i] + bias[i], i < n; bias may be
  // null. y may be x. (Ba et al. 2016)
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                     float* y);
  void (*activate)(const ActivateArgs&);
  // x[i] = cap * tanh(scale * x[i] / cap), or scale * x[i] if cap is 0. -infinity stays. n is a
  // multiple of kLane. (Soft-capping, Bello et al. 2016)
  void (*soft_cap)(float* x, int64_t n, float scale, float cap);
  // y[i] = fma(x[i], scale, y[i]); n is a multiple of kLane.
  void (*add_scaled)(const float* x, float scale, int64_t n, float* y);
  // Round to nearest even; NaN stays NaN. n is a multiple of kLane.
  void (*round_bf16)(const float* x, int64_t n, uint16_t* y);
  void (*round_f16)(const float* x, int64_t n, uint16_t* y);
  // Groups of 32 values to int8: scale = max |x| / 127, y = x * (127 / max |x|) rounded to nearest
  // even, sum = the sum of y. n is a multiple of kLane; half a group at the end is filled with
  // zeros. A group whose values are all below 2^-120 becomes zeros. A group with a NaN or an
  // infinity has a NaN as its scale.
  void (*quantize)(const float* x, int64_t n, int8_t* y, float* scales, int32_t* sums);

  // The rotation of vectors that are stored as codes. A rotated vector looks like a sample of a
  // normal distribution, which the codes are made for (TurboQuant, Zandieh et al. 2025). Each of n
  // coordinates, a multiple of 32 up to 512, is multiplied by its sign (kRotationSigns). n is then
  // split into powers of two, largest first (96 = 64 + 32). Each block goes through Hadamard's
  // butterflies (a + b, a - b) over strides 1, 2, 4, ..., and times 1 / sqrt(size). In place.
  void (*hadamard)(float* x, int64_t n);
  // The inverse: butterflies, times 1 / sqrt(size), times signs.
  void (*inverse_hadamard)(float* x, int64_t n);
  // `hadamard` of sixteen vectors: x (n, 16), coordinate after coordinate.
  void (*hadamard_lanes)(float* x, int64_t n);
  // n is a multiple of kLane.
  void (*widen_f16)(const uint16_t* x, int64_t n, float* y);
  void (*widen_bf16)(const uint16_t* x, int64_t n, float* y);
  // Codes of sixteen vectors, x (n, 16), n a multiple of 32 up to 512: one byte for each code in
  // codes (n, 16), and f16 scales: sixteen, or for a grouped codec sixteen for every group of 32
  // coordinates. KvCodec::exact has no codes.
  void (*encode)(KvCodec codec, const float* x, int64_t n, bool keys, uint8_t* codes,
                 uint16_t* scales);

  RowScans scans;  // scans of a row of logits, for sampling

  // Probes measure the limits of one core, for `onward doctor --measure` and the benchmarks.
  // Returns the sum of all 64-bit words, so that the compiler cannot drop the reads. bytes is a
  // multiple of 256.
  uint64_t (*probe_read)(const void* data, int64_t bytes);
  // Runs `iterations` rounds of independent multiply-adds in registers, and returns the number of
  // operations (2 per multiply-add). In the generic table they measure nothing useful.
  int64_t (*probe_f32)(int64_t iterations, float* sink);
};

// Products of bf16 weights with bf16 inputs.
struct Bf16Kernels {
  void (*linear_bf16)(const LinearArgs&);
  int64_t (*probe_bf16)(int64_t iterations, float* sink);
};

// Products of bytes: quantised weights with rounded inputs, and attention over codes.
struct ByteKernels {
  void (*linear_q8_0)(const LinearArgs&);
  void (*linear_q4_0)(const LinearArgs&);
  void (*linear_q4_1)(const LinearArgs&);
  // By the dtype of exact keys and values.
  void (*attend_coded_f32)(const CodedAttendArgs&);
  void (*attend_coded_f16)(const CodedAttendArgs&);
  void (*attend_coded_bf16)(const CodedAttendArgs&);
  void (*merge_units)(const CodedAttendArgs&);
  int64_t (*probe_int8)(int64_t iterations, float* sink);
};

struct Kernels : FloatKernels, Bf16Kernels, ByteKernels {
  // "generic", "neon", "neondot", "avx2", "avx2vnni", "avx512", "avx512vnni", "avx512bf16"
  const char* name;
};

// The best table that this processor AND its operating system (saved register state) can run, or
// the one that ONWARD_CPU_ISA names. InvalidArgument if that one is unknown or cannot run.
const Kernels& select_kernels();
// The names of all tables that this machine can run, slowest first, separated by commas.
const char* available_kernels();

}  // namespace onward::cpu
