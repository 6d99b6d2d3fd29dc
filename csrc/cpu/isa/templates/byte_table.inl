// The byte kernels of an instruction set, and their part of the table. Included last inside the
// anonymous namespace of a file that has included lanes.inl, codes.inl and one of the dots files.

// Each file builds on the ones before.
// clang-format off
#include "cpu/isa/templates/tiles.inl"
#include "cpu/isa/templates/byte_products.inl"
#include "cpu/isa/templates/exponential.inl"
#include "cpu/isa/templates/hadamard.inl"
#include "cpu/isa/templates/softmax.inl"
#include "cpu/isa/templates/code_formats.inl"
#include "cpu/isa/templates/code_tiles.inl"
#include "cpu/isa/templates/coded_spans.inl"
#include "cpu/isa/templates/units.inl"
// clang-format on

constexpr ByteKernels kByteKernels = {.linear_q8_0 = linear_groups<Q8Format>,
                                      .linear_q4_0 = linear_groups<Q40Format>,
                                      .linear_q4_1 = linear_groups<Q41Format>,
                                      .attend_coded_f32 = attend_coded_f32,
                                      .attend_coded_f16 = attend_coded_f16,
                                      .attend_coded_bf16 = attend_coded_bf16,
                                      .merge_units = merge_units,
                                      .probe_int8 = probe_int8};
