// CUDA on the CPU, for tests. The threads of a block are fibres (host/block.h), the lanes of a warp
// synchronise in exchanges, and a tensor core is a loop. Blocks and threads run in random order, so
// operations without a barrier between them give different results from run to run.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>

#include "cuda/gpu/host/block.h"
#include "cuda/gpu/runtime.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local

#define threadIdx (onward::cuda::host::place().thread)
#define blockIdx (onward::cuda::host::place().block)
#define blockDim (onward::cuda::host::place().block_size)
#define gridDim (onward::cuda::host::place().grid_size)

namespace onward::cuda {

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline float half_to_float(uint32_t bits) { return host::half_value(static_cast<uint16_t>(bits)); }

inline void sync_block() { host::sync_block(); }
inline void sync_warp() { host::exchange(0); }
inline char* shared_memory() { return host::shared_memory(); }

template <typename T>
T shuffle(T value, int lane) {
  return host::exchange(value)[lane & 31];
}
template <typename T>
T shuffle_xor(T value, int mask) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  return host::exchange(value)[lane ^ mask];
}

// The threads of a block take turns, and none switches inside this function.
inline uint32_t add_shared(uint32_t* shared, uint32_t value) {
  const uint32_t before = *shared;
  *shared = before + value;
  return before;
}

inline void copy_async16(void* shared, const void* global) { std::memcpy(shared, global, 16); }
inline void commit_copies() {}
template <int kInFlight>
void wait_copies() {}

inline uint4 read_once16(const void* global) {
  uint4 value;
  std::memcpy(&value, global, sizeof value);
  return value;
}
inline uint2 read_once8(const void* global) {
  uint2 value;
  std::memcpy(&value, global, sizeof value);
  return value;
}

inline void load_transposed(uint32_t (&r)[4], const void* row) {
  const auto rows = host::exchange(static_cast<const uint16_t*>(row));
  const int lane = static_cast<int>(threadIdx.x) & 31, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    r[i] = rows[8 * i + 2 * t][g] | static_cast<uint32_t>(rows[8 * i + 2 * t + 1][g]) << 16;
  }
}

// Rounds to 10 bits of mantissa, ties away from zero, like cvt.rna.tf32.
inline uint32_t to_tf32(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
  return (bits + 0x1000u) & ~0x1fffu;
}

struct Bf16Elements {
  static constexpr int kEach = 2;
  static double of(uint32_t word, int i) {
    return double{float_of(i == 0 ? word << 16 : word & 0xffff0000u)};
  }
};
struct F16Elements {
  static constexpr int kEach = 2;
  static double of(uint32_t word, int i) {
    return double{half_to_float(i == 0 ? word & 0xffffu : word >> 16)};
  }
};
struct Tf32Elements {
  static constexpr int kEach = 1;
  static double of(uint32_t word, int) { return double{float_of(word)}; }
};
struct S8Elements {
  static constexpr int kEach = 4;
  static int32_t of(uint32_t word, int i) { return static_cast<int8_t>(word >> (8 * i)); }
};

inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  host::multiply_tiles<Bf16Elements>(d, a, b);
}
inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  host::multiply_tiles<F16Elements>(d, a, b);
}
inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  host::multiply_tiles<Tf32Elements>(d, a, b);
}
inline void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  host::multiply_tiles<S8Elements>(d, a, b);
}

inline int32_t dot4(uint32_t a, uint32_t b, int32_t sum) {
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  }
  return sum;
}
inline uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) {
    picked |= (bytes >> ((selector >> (4 * i) & 7) * 8) & 0xff) << (8 * i);
  }
  return picked;
}

template <typename... Parameters, typename... Arguments>
void launch(Stream& stream, const Grid& grid, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  host::launch(stream, grid, [=] { kernel(Parameters(arguments)...); });
}

}  // namespace onward::cuda
