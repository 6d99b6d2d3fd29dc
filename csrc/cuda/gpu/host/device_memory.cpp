#include "cuda/gpu/host/device_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

#include "base/buffer.h"

namespace onward::cuda::host {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAddresses = size_t{1} << 38;  // reserved; pages take memory at the first write

// All device memory of the process is in one mapping, so that one call opens or closes it.
class Memory {
 public:
  Memory() {
    void* mapping =
        mmap(nullptr, kAddresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    base_ = mapping == MAP_FAILED ? nullptr : static_cast<char*>(mapping);
    const char* apart = std::getenv("ONWARD_CUDA_HOST_APART");
    if (apart == nullptr || *apart != '1') accesses_ = 1;  // always open
  }

  void* allocate(size_t bytes) {
    const size_t size = static_cast<size_t>(round_up(static_cast<int64_t>(bytes + 1), kPage));
    const std::lock_guard<std::mutex> lock(mutex_);
    char* memory = nullptr;
    if (const auto fit = free_.lower_bound(size); fit != free_.end() && fit->first < 2 * size) {
      memory = fit->second;
      sizes_[memory] = fit->first;
      free_.erase(fit);
      return memory;  // its pages were returned to the system, so they are zero
    }
    if (base_ == nullptr || used_ + size > kAddresses) throw std::bad_alloc();
    memory = base_ + used_;
    used_ += size;
    if (accesses_ > 0) protect(PROT_READ | PROT_WRITE);
    sizes_[memory] = size;
    return memory;
  }

  void release(void* memory) noexcept {
    if (memory == nullptr) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = sizes_.find(static_cast<char*>(memory));
    if (found == sizes_.end()) return;
    madvise(found->first, found->second, MADV_DONTNEED);
    free_.emplace(found->second, found->first);
    sizes_.erase(found);
  }

  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (accesses_++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  void close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--accesses_ == 0) protect(PROT_NONE);
  }

 private:
  void protect(int reach) {
    if (used_ > 0) mprotect(base_, used_, reach);
  }

  std::mutex mutex_;
  char* base_ = nullptr;
  size_t used_ = 0;
  int accesses_ = 0;
  std::map<char*, size_t> sizes_;
  std::multimap<size_t, char*> free_;
};

Memory& memory() {
  static Memory* all = new Memory;  // outlives every stream
  return *all;
}

}  // namespace

void* allocate_device(size_t bytes) { return memory().allocate(bytes); }
void release_device(void* device) noexcept { memory().release(device); }
DeviceAccess::DeviceAccess() { memory().open(); }
DeviceAccess::~DeviceAccess() { memory().close(); }

}  // namespace onward::cuda::host
