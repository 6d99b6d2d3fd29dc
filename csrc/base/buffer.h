// Owned, 64-byte aligned, zeroed memory. Knows nothing of what is stored in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onward {

// Zeroed memory, 64-byte aligned, for free(). Throws std::bad_alloc.
void* allocate_zeroed(size_t bytes);

// Memory of its own, in pages of its own where it is large: a freed block that malloc gave would
// stay with the arena of the thread that asked. Movable, not copyable.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes);  // zeroed; throws std::bad_alloc
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  template <typename T = void>
  T* data() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Bump allocator over large anonymous mappings on huge pages: weights are read from end to end once
// per token, and with 4 KiB pages the page walks alone cost a tenth of the bandwidth. Pages that
// were never written take no memory. Freed as a whole.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;
  Arena(const Arena&) = delete;

  void* allocate(size_t bytes);  // zeroed, 64-byte aligned; throws std::bad_alloc
  size_t bytes_used() const { return bytes_used_; }

 private:
  struct Mapping {
    char* base;
    size_t bytes;
    size_t used;
  };
  std::vector<Mapping> mappings_;
  size_t bytes_used_ = 0;
};

// Zeroed memory whose pages take room once they are written to, 64-byte aligned, and on a page
// where it is large. For unreserve_pages with the same size. Throws std::bad_alloc.
void* reserve_pages(size_t bytes);
void unreserve_pages(void* memory, size_t bytes) noexcept;

// Gives back the memory of the pages that lie wholly in the range. Those of a read-only mapping of
// a file are read again when they are looked at again; those of reserve_pages are zeros then.
void drop_whole_pages(const void* begin, size_t bytes) noexcept;

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace onward
