// One device and its one stream: memory, copies, launches in order, and runs of launches that are
// recorded once and done again. Every failing call is a DeviceError with the call, the file and the
// line. Two implementations: real/runtime.cu and, for the test build, host/runtime.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/device_library.h"

namespace onward::cuda {

// Shared memory that a block may have on every GPU that is accepted: 99 KiB, of compute capability
// 8.6, 8.9 and 12.0.
constexpr size_t kLeastSharedBytes = size_t{99} << 10;

// How many blocks of how many threads, and the bytes of shared_memory() each block has.
struct Grid {
  int64_t x = 1;
  int64_t y = 1;
  int64_t z = 1;
  int threads = 32;
  size_t shared_bytes = 0;
};

// Launches that were recorded (Stream::record).
class Recording {
 public:
  virtual ~Recording() = default;
};

class Stream {
 public:
  // DeviceError when the device cannot be used. threads: of the host.
  Stream(int device, int threads);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const std::string& description() const { return description_; }

  void* allocate(size_t bytes);  // zeroed; std::bad_alloc
  void release(void* memory) noexcept;
  void upload(void* device, const void* host, size_t bytes);
  void download(void* host, const void* device, size_t bytes);  // waits for all before it
  void copy(void* to, const void* from, size_t bytes);
  void wait();

  // Launches made by work() are kept, and done once. Null where work() launched nothing.
  std::unique_ptr<Recording> record(const std::function<void()>& work);
  void replay(const Recording& recording);

  int processors() const { return processors_; }          // streaming multiprocessors
  size_t shared_bytes() const { return shared_bytes_; }  // the most that a block may have
  struct State;
  State& state() const { return *state_; }  // for launch

 private:
  std::string description_;
  int processors_ = 1;
  size_t shared_bytes_ = kLeastSharedBytes;
  std::unique_ptr<State> state_;
};

// Those of this build, usable or not; at least one entry.
std::vector<LibraryDevice> list_devices();
// As device_library.h has it.
int64_t free_bytes(int device);

}  // namespace onward::cuda
