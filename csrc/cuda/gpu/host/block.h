// A block of GPU threads on the CPU: each thread is a fibre, and fibres switch at barriers and
// exchanges.
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
constexpr size_t kSlotBytes = 64;  // for an exchange: the fragments of one lane

struct Extent {
  uint32_t x = 1, y = 1, z = 1;
};

// The running thread. It is used everywhere, so it has the fastest access model of thread-locals.
struct Place {
  Extent thread, block, block_size, grid_size;
};
extern thread_local Place* running_place __attribute__((tls_model("initial-exec")));
inline const Place& place() { return *running_place; }

float half_value(uint16_t bits);

void sync_block();
char* shared_memory();

// Waits until all lanes of the warp have called it with a value of `bytes` bytes. Returns the
// values of all lanes, kSlotBytes apart, valid until the lane's exchange after the next. If
// `together` is given, the last lane calls it on all values.
const char* exchange_bytes(const void* value, size_t bytes, void (*together)(char*) = nullptr);

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

// The operands of a lane for a tensor core; the result is in d.
template <typename Sum>
struct Fragments {
  uint32_t a[4];
  uint32_t b[2];
  Sum d[4];
};

// d += A B of all lanes. A has 16 rows, B has 8 columns. k is stored in words of kEach elements,
// which Element::of converts to a type with exact sums. Lane l holds the words (row g, word t), (g
// + 8, t), (g, t + 4), (g + 8, t + 4) of A and (word t, column g), (t + 4, g) of B. The sum of a
// step is rounded once.
template <class Element, typename Sum>
void multiply_together(char* slots) {
  using Exact = decltype(Element::of(0, 0));
  constexpr int kSteps = 8 * Element::kEach;  // along k
  const auto lane = [slots](int i) {
    return reinterpret_cast<Fragments<Sum>*>(slots + static_cast<size_t>(i) * kSlotBytes);
  };
  Exact a[16][kSteps], b[kSteps][8], d[16][8];
  for (int l = 0; l < kLanes; ++l) {
    const Fragments<Sum>& f = *lane(l);
    const int g = l / 4, t = l % 4;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < Element::kEach; ++i) {
        const int k = (half * 4 + t) * Element::kEach + i;
        a[g][k] = Element::of(f.a[2 * half], i);
        a[g + 8][k] = Element::of(f.a[2 * half + 1], i);
        b[k][g] = Element::of(f.b[half], i);
      }
    }
    for (int i = 0; i < 4; ++i) d[g + i / 2 * 8][t * 2 + i % 2] = static_cast<Exact>(f.d[i]);
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < kSteps; ++k) {
      for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int l = 0; l < kLanes; ++l) {
    for (int i = 0; i < 4; ++i) {
      lane(l)->d[i] = static_cast<Sum>(d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2]);
    }
  }
}

template <class Element, typename Sum>
void multiply_tiles(Sum (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Fragments<Sum> mine;
  std::memcpy(mine.a, a, sizeof mine.a);
  std::memcpy(mine.b, b, sizeof mine.b);
  std::memcpy(mine.d, d, sizeof mine.d);
  const char* slots = exchange_bytes(&mine, sizeof mine, &multiply_together<Element, Sum>);
  const size_t lane = place().thread.x % kLanes;
  std::memcpy(d, reinterpret_cast<const Fragments<Sum>*>(slots + lane * kSlotBytes)->d, sizeof d);
}

// Runs every thread of every block, or records the launch if the stream is recording.
void launch(Stream& stream, const Grid& grid, std::function<void()> thread);

// Runs it at once. `seed` determines the order of blocks and threads.
void run_grid(const Grid& grid, uint64_t seed, int64_t block, const std::function<void()>& thread);

}  // namespace onward::cuda::host
