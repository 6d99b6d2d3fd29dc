// The kernels in plain loops, in exactly the order that cpu/kernels.h documents. They are the
// reference for the other instruction sets, and run on processors without any of them.
#pragma once

#include "cpu/kernels.h"

namespace onward::cpu::generic {

const FloatKernels* float_kernels();
const Bf16Kernels* bf16_kernels();
const ByteKernels* byte_kernels();

}  // namespace onward::cpu::generic
