// The float kernels of an instruction set that is described by sixteen-float Lanes (its lanes.inl),
// and their part of the table. Included last inside the anonymous namespace of its float file.

// Each file builds on the ones before.
// clang-format off
#include "cpu/isa/templates/tiles.inl"
#include "cpu/isa/templates/chains.inl"
#include "cpu/isa/templates/float_products.inl"
#include "cpu/isa/templates/exponential.inl"
#include "cpu/isa/templates/activations.inl"
#include "cpu/isa/templates/rows.inl"
#include "cpu/isa/templates/softmax.inl"
#include "cpu/isa/templates/exact_tiles.inl"
#include "cpu/isa/templates/spans.inl"
#include "cpu/isa/templates/scans.inl"
#include "cpu/isa/templates/hadamard.inl"
#include "cpu/isa/templates/encode.inl"
// clang-format on

constexpr FloatKernels kFloatKernels = {.linear_f32 = linear<F32Format>,
                                        .linear_f16 = linear<F16Format>,
                                        .attend_f32 = attend_f32,
                                        .attend_f16 = attend_f16,
                                        .attend_bf16 = attend_bf16,
                                        .merge_spans = merge_spans,
                                        .rms_norm = rms_norm,
                                        .layer_norm = layer_norm,
                                        .activate = activate,
                                        .soft_cap = soft_cap,
                                        .add_scaled = add_scaled,
                                        .round_bf16 = round_bf16,
                                        .round_f16 = round_f16,
                                        .quantize = quantize,
                                        .hadamard = hadamard,
                                        .inverse_hadamard = inverse_hadamard,
                                        .hadamard_lanes = hadamard_lanes,
                                        .widen_f16 = widen_f16,
                                        .widen_bf16 = widen_bf16,
                                        .encode = encode,
                                        .scans = kScans,
                                        .probe_read = probe_read,
                                        .probe_f32 = probe_multiply_add<F32Format>};
