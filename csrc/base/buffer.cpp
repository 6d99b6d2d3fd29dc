#include "base/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace onward {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMappingBytes = size_t{64} << 20;
constexpr size_t kLargeBytes = size_t{64} << 10;
// From this size on, memory has pages of its own. The last page wastes an eighth on average.
constexpr size_t kReservedBytes = size_t{16} << 10;
}  // namespace

void* allocate_zeroed(size_t bytes) {
  // Large memory begins on a page. In many models, the keys and values of one head in a cache block
  // fill exactly one page. If they crossed a page boundary, decode would need twice the page walks.
  const size_t alignment = bytes < kLargeBytes ? 64 : 4096;
  const size_t padded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  if (padded < bytes) throw std::bad_alloc();
  void* memory = std::aligned_alloc(alignment, padded);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, padded);
  return memory;
}

AlignedBuffer::AlignedBuffer(size_t bytes) : data_(reserve_pages(bytes)), bytes_(bytes) {}

AlignedBuffer::~AlignedBuffer() { unreserve_pages(data_, bytes_); }

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Arena::Arena(Arena&& other) noexcept
    : mappings_(std::move(other.mappings_)), bytes_used_(other.bytes_used_) {
  other.mappings_.clear();
}

Arena::~Arena() {
  for (const Mapping& mapping : mappings_) munmap(mapping.base, mapping.bytes);
}

void* Arena::allocate(size_t bytes) {
  const size_t padded = (bytes + 63) / 64 * 64;
  if (padded < bytes) throw std::bad_alloc();
  if (mappings_.empty() || mappings_.back().bytes - mappings_.back().used < padded) {
    size_t size = std::max(kMappingBytes, (padded + kHugePage - 1) / kHugePage * kHugePage);
    void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(base, size, MADV_HUGEPAGE);  // a hint; a system without huge pages refuses it
#endif
    mappings_.push_back({static_cast<char*>(base), size, 0});
  }
  Mapping& mapping = mappings_.back();
  void* result = mapping.base + mapping.used;
  mapping.used += padded;
  bytes_used_ += padded;
  return result;
}

void* reserve_pages(size_t bytes) {
  if (bytes < kReservedBytes) return allocate_zeroed(bytes);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

void unreserve_pages(void* memory, size_t bytes) noexcept {
  if (bytes < kReservedBytes) {
    std::free(memory);
  } else {
    munmap(memory, bytes);
  }
}

void drop_whole_pages(const void* begin, size_t bytes) noexcept {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(begin) + bytes) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace onward
