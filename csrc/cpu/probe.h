// Measures what this processor can do at most: read memory, and multiply and add in registers.
#pragma once

#include <string>

#include "cpu/kernels.h"

namespace onward::cpu {

// Runs one of the kernels' probes on `threads` threads for about `seconds` seconds. Returns GB/s
// for kind "read", and GFLOP/s (GOP/s for integers) for "f32", "bf16" and "int8", of all threads
// together. InvalidArgument for another kind, for other than 1 to 1024 threads, or for more than
// 60 seconds.
double probe(const Kernels& kernels, const std::string& kind, double seconds, int threads);

}  // namespace onward::cpu
