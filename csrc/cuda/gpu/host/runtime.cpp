// The runtime of the test build. A launch runs at once on all host threads; a recording is a list
// of launches.
#include "cuda/gpu/runtime.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "cuda/gpu/host/block.h"
#include "cuda/gpu/host/device_memory.h"

namespace onward::cuda {
namespace {

struct Launch {
  Grid grid;
  std::function<void()> thread;
};

class HostRecording final : public Recording {
 public:
  std::vector<Launch> launches;
};

// A setting of the device from the environment, such as the first seed.
uint64_t setting(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

constexpr int kMostThreads = 1024;
constexpr int64_t kMostBlocks = 65535;  // in y and z

}  // namespace

struct Stream::State {
  explicit State(int threads) : pool(threads) {}
  ThreadPool pool;
  uint64_t seed = setting("ONWARD_CUDA_HOST_SEED", 1);
  HostRecording* recording = nullptr;
};

Stream::Stream(int, int threads)
    : description_("CUDA kernels on the processor"),
      processors_(static_cast<int>(setting("ONWARD_CUDA_HOST_PROCESSORS", 1))),
      shared_bytes_(setting("ONWARD_CUDA_HOST_SHARED_BYTES", kLeastSharedBytes)),
      state_(std::make_unique<State>(threads)) {}
Stream::~Stream() = default;

void* Stream::allocate(size_t bytes) { return host::allocate_device(bytes); }
void Stream::release(void* memory) noexcept { host::release_device(memory); }
void Stream::upload(void* device, const void* host, size_t bytes) {
  const host::DeviceAccess access;
  std::memcpy(device, host, bytes);
}
void Stream::download(void* host, const void* device, size_t bytes) {
  const host::DeviceAccess access;
  std::memcpy(host, device, bytes);
}
void Stream::copy(void* to, const void* from, size_t bytes) {
  const host::DeviceAccess access;
  std::memcpy(to, from, bytes);
}
void Stream::wait() {}

std::unique_ptr<Recording> Stream::record(const std::function<void()>& work) {
  auto recording = std::make_unique<HostRecording>();
  state_->recording = recording.get();
  try {
    work();
  } catch (...) {
    state_->recording = nullptr;
    throw;
  }
  state_->recording = nullptr;
  if (recording->launches.empty()) return nullptr;
  replay(*recording);
  return recording;
}

void Stream::replay(const Recording& recording) {
  for (const Launch& launch : static_cast<const HostRecording&>(recording).launches) {
    host::launch(*this, launch.grid, launch.thread);
  }
}

int64_t free_bytes(int) { return -1; }

std::vector<LibraryDevice> list_devices() { return {{"CUDA kernels on the processor", ""}}; }

void host::launch(Stream& stream, const Grid& grid, std::function<void()> thread) {
  if (grid.threads > kMostThreads || grid.shared_bytes > stream.shared_bytes() || grid.x < 1 ||
      grid.y < 1 || grid.z < 1 || grid.y > kMostBlocks || grid.z > kMostBlocks) {
    throw DeviceError("launch: a grid of " + std::to_string(grid.x) + " x " +
                      std::to_string(grid.y) + " x " + std::to_string(grid.z) + " blocks of " +
                      std::to_string(grid.threads) + " threads and " +
                      std::to_string(grid.shared_bytes) + " shared bytes, expected less");
  }
  Stream::State& state = stream.state();
  if (state.recording != nullptr) {
    state.recording->launches.push_back({grid, std::move(thread)});
    return;
  }
  const uint64_t seed = state.seed++;
  const int64_t blocks = grid.x * grid.y * grid.z;
  // A random order. The step is an odd number near the golden ratio of the count; it visits every
  // block.
  int64_t step = static_cast<int64_t>(static_cast<double>(blocks) * 0.618) | 1;
  while (std::__gcd(step, blocks) != 1) ++step;
  const int64_t first = static_cast<int64_t>(seed * 7919 % static_cast<uint64_t>(blocks));
  const DeviceAccess access;
  state.pool.run(
      blocks, [&](int64_t task) { run_grid(grid, seed, (first + task * step) % blocks, thread); });
}

}  // namespace onward::cuda
