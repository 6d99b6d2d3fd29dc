// A block of threads on the processor: fibres that take turns where they meet. Knows nothing of
// kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace onward::cuda {
class Stream;
struct Grid;
}  // namespace onward::cuda

namespace onward::cuda::host {

constexpr int kLanes = 32;
constexpr size_t kSlotBytes = 32;  // of an exchange: the fragments of one lane

struct Extent {
  uint32_t x = 1, y = 1, z = 1;
};

// Of the thread that runs. Looked at everywhere: the short way to a variable of a thread.
struct Place {
  Extent thread, block, block_size, grid_size;
};
extern thread_local Place* running_place __attribute__((tls_model("initial-exec")));
inline const Place& place() { return *running_place; }

float half_value(uint16_t bits);

void sync_block();
char* shared_memory();

// Waits until all lanes of the warp have come with a value of so many bytes, and returns where
// those lie, kSlotBytes apart, until the lane's next exchange but one.
const char* exchange_bytes(const void* value, size_t bytes);

template <typename T>
class Exchanged {
 public:
  explicit Exchanged(const char* slots) : slots_(slots) {}
  T operator[](int lane) const {
    T value;
    std::memcpy(&value, slots_ + static_cast<size_t>(lane) * kSlotBytes, sizeof value);
    return value;
  }

 private:
  const char* slots_;
};

template <typename T>
Exchanged<T> exchange(const T& value) {
  static_assert(sizeof(T) <= kSlotBytes);
  return Exchanged<T>(exchange_bytes(&value, sizeof value));
}

// d += A B of a tensor core: A 16 rows, B 8 columns, k in words of kEach elements, which `element`
// takes out as what sums are exact in. Lane l of A holds the words (row g, word t), (g + 8, t), (g,
// t + 4), (g + 8, t + 4); of B (word t, column g), (t + 4, g). The sum of a step is rounded once.
template <int kEach, typename Exact, typename Sum, typename Element>
void multiply_tiles(Sum (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                    const Element& element) {
  struct Operands {
    uint32_t a[4];
    uint32_t b[2];
  } mine;
  std::memcpy(mine.a, a, sizeof mine.a);
  std::memcpy(mine.b, b, sizeof mine.b);
  const char* slots = exchange_bytes(&mine, sizeof mine);
  const int lane = static_cast<int>(place().thread.x) % kLanes, g = lane / 4, t = lane % 4;
  const auto of_lane = [&](int other) {
    return reinterpret_cast<const Operands*>(slots + static_cast<size_t>(other) * kSlotBytes);
  };
  constexpr int kSteps = 8 * kEach;  // of k
  Exact rows[2][kSteps], columns[2][kSteps];
  for (int word = 0; word < 4; ++word) {
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < kEach; ++i) {
        const int at = (half * 4 + word) * kEach + i;
        for (int one = 0; one < 2; ++one) {
          rows[one][at] = element(of_lane(4 * g + word)->a[2 * half + one], i);
          columns[one][at] = element(of_lane(8 * t + 4 * one + word)->b[half], i);
        }
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    Exact sum = static_cast<Exact>(d[i]);
    for (int k = 0; k < kSteps; ++k) sum += rows[i / 2][k] * columns[i % 2][k];
    d[i] = static_cast<Sum>(sum);
  }
}

// Runs every thread of every block, or keeps the launch where the stream records.
void launch(Stream& stream, const Grid& grid, std::function<void()> thread);

// The same, at once; seed: of the order of blocks and threads.
void run_grid(const Grid& grid, uint64_t seed, int64_t block, const std::function<void()>& thread);

}  // namespace onward::cuda::host
