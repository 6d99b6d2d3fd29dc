// The language of the kernels: names of CUDA and a few wrappers. They have the same meaning on a
// GPU (real/gpu.h) and, in the test build, on the CPU (host/gpu.h). A kernel includes only this
// file and does not distinguish the two.
//
//   threadIdx.x  blockIdx.{x,y,z}  blockDim.x  gridDim.{x,y,z}     blocks are one-dimensional
//   sync_block()  sync_warp()
//   shuffle(v, lane)  shuffle_xor(v, mask)           all 32 lanes must call it
//   shared_memory()                                  the size of the launch, 16-byte aligned
//   add_shared(shared, value)                        32-bit integers, atomic; returns the old value
//   copy_async16(shared, global)  commit_copies()  wait_copies<n>()
//   read_once16(global)                              16 bytes that are read only once
//   mma_bf16, mma_f16, mma_tf32, mma_s8              tensor cores; shapes below
//   load_transposed(r, row)                          four 8 x 8 matrices of 16 bits from shared
//                                                    memory: lane l has row l % 8 of matrix l / 8,
//                                                    r[i] elements (2t, g), (2t + 1, g) of the i-th
//   dot4(a, b, sum)                                  sum + the products of four signed bytes
//   pick_bytes(low, high, selector)                  four of eight bytes; each nibble has an index
//   bits_of(float)  float_of(uint32_t)
//   launch(stream, grid, kernel, arguments...)
//
// Tensor cores, in the fragments of PTX's mma.m16n8k16, m16n8k8 and m16n8k32 (row, col): lane l has
// g = l / 4 and t = l % 4; d[0..1] are (row g, columns 2t and 2t + 1), d[2..3] the same of row g
// + 8.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#include "cuda/gpu/real/gpu.h"
#else
#include "cuda/gpu/host/gpu.h"
#endif
