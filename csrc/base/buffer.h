// Memory: owned, 64-byte aligned and zeroed buffers, an arena, and reserved pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onward {

// Zeroed memory, 64-byte aligned; release it with free(). Throws std::bad_alloc.
void* allocate_zeroed(size_t bytes);

// Owned memory. A large buffer has pages of its own, because a large block from malloc would stay
// in the arena of the allocating thread after free. Movable, not copyable.
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

// A bump allocator on large anonymous mappings with huge pages. Weights are read completely for
// each token, and with 4 KiB pages the page walks cost a tenth of the bandwidth. Pages that were
// never written take no memory. All memory is freed together.
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

// Zeroed memory whose pages take memory at the first write. It is 64-byte aligned; a large one
// begins on a page. Release it with unreserve_pages and the same size. Throws std::bad_alloc.
void* reserve_pages(size_t bytes);
void unreserve_pages(void* memory, size_t bytes) noexcept;

// Returns the memory of all pages that lie completely in the range. At the next access, pages of a
// read-only mapping are read again from the file, and pages of reserve_pages are zero.
void drop_whole_pages(const void* begin, size_t bytes) noexcept;

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace onward
