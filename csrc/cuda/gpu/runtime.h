// One device with one stream: memory, copies, launches in order, and sequences of launches that are
// recorded and replayed. A failed call throws DeviceError with the call, the file and the line. The
// two implementations are real/runtime.cu and, for the test build, host/runtime.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/device_library.h"

namespace onward::cuda {

// The shared memory of a block that every accepted GPU has: 99 KiB, the limit of compute capability
// 8.6, 8.9 and 12.0.
constexpr size_t kLeastSharedBytes = size_t{99} << 10;

// The numbers of blocks and threads of a launch, and the bytes of shared_memory() for each block.
struct Grid {
  int64_t x = 1;
  int64_t y = 1;
  int64_t z = 1;
  int threads = 32;
  size_t shared_bytes = 0;
};

// Recorded launches (Stream::record).
class Recording {
 public:
  virtual ~Recording() = default;
};

class Stream {
 public:
  // `threads` is the number of host threads. Throws DeviceError if the device cannot be used.
  Stream(int device, int threads);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const std::string& description() const { return description_; }

  void* allocate(size_t bytes);  // zeroed; throws std::bad_alloc
  void release(void* memory) noexcept;
  void upload(void* device, const void* host, size_t bytes);
  void download(void* host, const void* device, size_t bytes);  // waits for all earlier work
  void copy(void* to, const void* from, size_t bytes);
  void wait();

  // Records the launches of work() and runs them once. Returns null if work() launches nothing.
  std::unique_ptr<Recording> record(const std::function<void()>& work);
  void replay(const Recording& recording);

  int processors() const { return processors_; }          // streaming multiprocessors
  size_t shared_bytes() const { return shared_bytes_; }  // the largest size for a block
  struct State;
  State& state() const { return *state_; }  // for launch

 private:
  std::string description_;
  int processors_ = 1;
  size_t shared_bytes_ = kLeastSharedBytes;
  std::unique_ptr<State> state_;
};

// The devices of this build, usable or not; at least one entry.
std::vector<LibraryDevice> list_devices();
// See device_library.h.
int64_t free_bytes(int device);

}  // namespace onward::cuda
