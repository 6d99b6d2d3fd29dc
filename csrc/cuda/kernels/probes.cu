// Measures the limits of a device with kernels that do only one thing: read, copy, multiply-add in
// float32, or multiply bf16 and int8 on the tensor cores. The figures of a model are compared with
// these limits.
#include <algorithm>
#include <chrono>
#include <type_traits>

#include "cuda/gpu/gpu.h"
#include "cuda/kernels/verbs.h"

namespace onward::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kStreamBlocks = 8;      // for each multiprocessor: all threads that it can hold
constexpr int kArithmeticBlocks = 2;  // 16 warps, each with kChains chains
constexpr int kChains = 8;
constexpr int kUnrolled = 4;                           // loads of a thread in flight
constexpr int64_t kProcessorBytes = int64_t{8} << 20;  // in total; larger than every cache
constexpr int kFmaSteps = 16;                          // in a round, so that its loop costs little
constexpr double kFmaOperations = 2.0 * kChains * kFmaSteps * kThreads;
constexpr double kWarps = kThreads / 32;
constexpr double kBf16Operations = 2.0 * 16 * 8 * 16 * kChains * kWarps;  // in a round of a block
constexpr double kInt8Operations = 2.0 * 16 * 8 * 32 * kChains * kWarps;
constexpr int kRounds = 3;  // timed rounds; the best counts
constexpr int kMostRepeats = 1 << 26;

__global__ void __launch_bounds__(kThreads)
    read_all(const uint4* from, int64_t count, int repeats, uint32_t* out) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  uint32_t folded[kUnrolled] = {};
  for (int pass = 0; pass < repeats; ++pass) {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
         i + (kUnrolled - 1) * step < count; i += kUnrolled * step) {
      for (int u = 0; u < kUnrolled; ++u) {
        const uint4 v = read_once16(from + i + u * step);
        folded[u] += v.x ^ v.y ^ v.z ^ v.w;
      }
    }
  }
  uint32_t all = 0;
  for (int u = 0; u < kUnrolled; ++u) all |= folded[u];
  if (all != 0) *out = all;  // the memory is zero, but the compiler does not know it
}

__global__ void __launch_bounds__(kThreads)
    copy_all(const uint4* from, uint4* to, int64_t count, int repeats) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int pass = 0; pass < repeats; ++pass) {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
         i + (kUnrolled - 1) * step < count; i += kUnrolled * step) {
      uint4 v[kUnrolled];
      for (int u = 0; u < kUnrolled; ++u) v[u] = read_once16(from + i + u * step);
      for (int u = 0; u < kUnrolled; ++u) to[i + u * step] = v[u];
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    multiply_add_f32(float factor, int repeats, uint32_t* out) {
  float sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = static_cast<float>(threadIdx.x + i);
  for (int round = 0; round < repeats; ++round) {
    for (int step = 0; step < kFmaSteps; ++step) {
      for (int i = 0; i < kChains; ++i) sums[i] = fmaf(sums[i], factor, 1.0f);
    }
  }
  uint32_t all = 0;
  for (int i = 0; i < kChains; ++i) all |= bits_of(sums[i]);
  if (all == 0xffffffffu) *out = all;
}

// Operands that differ between lanes: numbers near 1, or arbitrary bytes.
template <bool kBf16>
__global__ void __launch_bounds__(kThreads)
    multiply_tiles(uint32_t bits, uint32_t mask, int repeats, uint32_t* out) {
  using Sum = std::conditional_t<kBf16, float, int32_t>;
  uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = bits ^ ((threadIdx.x * 0x9e3779b9u + i) & mask);
  for (int i = 0; i < 2; ++i) b[i] = bits ^ ((threadIdx.x * 0x85ebca6bu + i) & mask);
  Sum sums[kChains][4] = {};
  for (int round = 0; round < repeats; ++round) {
    for (int i = 0; i < kChains; ++i) {
      if constexpr (kBf16) {
        mma_bf16(sums[i], a, b);
      } else {
        mma_s8(sums[i], a, b);
      }
    }
  }
  uint32_t all = 0;
  for (int i = 0; i < kChains; ++i) {
    for (int j = 0; j < 4; ++j) {
      if constexpr (kBf16) {
        all |= bits_of(sums[i][j]);
      } else {
        all |= static_cast<uint32_t>(sums[i][j]);
      }
    }
  }
  if (all == 0xffffffffu) *out = all;
}

// Device memory of a measurement.
class Memory {
 public:
  Memory(Stream& stream, int64_t bytes)
      : stream_(stream), data_(stream.allocate(static_cast<size_t>(bytes))) {}
  ~Memory() { stream_.release(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  template <typename T>
  T* data() const {
    return static_cast<T*>(data_);
  }

 private:
  Stream& stream_;
  void* data_;
};

template <typename Run>
double seconds_of(Stream& stream, const Run& run, int repeats) {
  using Clock = std::chrono::steady_clock;
  stream.wait();
  const auto begin = Clock::now();
  run(repeats);
  stream.wait();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Returns 10^9 units per second, measured in about `seconds`. `units` is the number of units of one
// repeat. The repeats grow until the cost of a launch is negligible; then the best round counts.
template <typename Run>
double rate(Stream& stream, double units, double seconds, const Run& run) {
  seconds_of(stream, run, 1);                    // loads the code to the device
  const double round = seconds / (kRounds + 2);  // growing takes at most two
  int repeats = 1;
  double best = seconds_of(stream, run, repeats);
  while (best < round && repeats < kMostRepeats) {
    const double wanted = round / std::max(best, 1e-9);
    repeats *= static_cast<int>(std::clamp(wanted, 2.0, 16.0));
    best = seconds_of(stream, run, repeats);
  }
  for (int i = 1; i < kRounds; ++i) best = std::min(best, seconds_of(stream, run, repeats));
  return 1e-9 * units * repeats / best;
}

}  // namespace

DevicePeaks measure_peaks(Stream& stream, double seconds) {
  const int64_t processors = stream.processors();
  const Grid streaming = {processors * kStreamBlocks, 1, 1, kThreads, 0};
  const Grid computing = {processors * kArithmeticBlocks, 1, 1, kThreads, 0};
  const int64_t bytes = processors * kProcessorBytes;
  const int64_t count = bytes / static_cast<int64_t>(sizeof(uint4));
  const double blocks = static_cast<double>(computing.x);
  const Memory from(stream, bytes), to(stream, bytes), out(stream, sizeof(uint32_t));
  DevicePeaks peaks;
  peaks.read_gb_per_s = rate(stream, static_cast<double>(bytes), seconds, [&](int repeats) {
    launch(stream, streaming, read_all, from.data<uint4>(), count, repeats, out.data<uint32_t>());
  });
  peaks.copy_gb_per_s = rate(stream, 2.0 * static_cast<double>(bytes), seconds, [&](int repeats) {
    launch(stream, streaming, copy_all, from.data<uint4>(), to.data<uint4>(), count, repeats);
  });
  peaks.f32_gflop_per_s = rate(stream, blocks * kFmaOperations, seconds, [&](int repeats) {
    launch(stream, computing, multiply_add_f32, 0.5f, repeats, out.data<uint32_t>());
  });
  peaks.bf16_gflop_per_s = rate(stream, blocks * kBf16Operations, seconds, [&](int repeats) {
    launch(stream, computing, multiply_tiles<true>, 0x3f803f80u, 0x807f807fu, repeats,
           out.data<uint32_t>());
  });
  peaks.int8_gop_per_s = rate(stream, blocks * kInt8Operations, seconds, [&](int repeats) {
    launch(stream, computing, multiply_tiles<false>, 0u, 0x7f7f7f7fu, repeats,
           out.data<uint32_t>());
  });
  return peaks;
}

}  // namespace onward::cuda
