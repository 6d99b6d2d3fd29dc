// The runtime on a GPU: plain allocations, one stream, and graphs for recordings.
#include <cstdio>
#include <utility>

#include "cuda/gpu/gpu.h"

namespace onward::cuda {
namespace {

constexpr int kLeastMajor = 8;  // bf16 and asynchronous copies
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(cudaGraphExec_t graph) : graph(graph) {}
  ~CudaRecording() override { cudaGraphExecDestroy(graph); }
  cudaGraphExec_t graph;
};

LibraryDevice describe(int device) {
  cudaDeviceProp found;
  CHECK_CUDA(cudaGetDeviceProperties(&found, device));
  char size[32];
  std::snprintf(size, sizeof size, "%.1f GiB", static_cast<double>(found.totalGlobalMem) / kGiB);
  const std::string text = std::string(found.name) + ", sm_" + std::to_string(found.major) +
                           std::to_string(found.minor) + ", " + size;
  if (found.major < kLeastMajor) return {text, text + ": expected sm_80 or later"};
  if (found.sharedMemPerBlockOptin < kLeastSharedBytes) {
    return {text, text + ": a block may have " + std::to_string(found.sharedMemPerBlockOptin) +
                      " bytes of shared memory, expected at least " +
                      std::to_string(kLeastSharedBytes)};
  }
  return {text, ""};
}

// "13.0" for 13000.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The reason why there is no device, and the next step for the user.
std::string why_no_device(cudaError_t status) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  const std::string needed = version_text(CUDART_VERSION);
  if (driver == 0) {
    return "no NVIDIA driver is installed, expected one for CUDA " + needed +
           " or later (nvidia-smi tells)";
  }
  if (status == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver is for CUDA " + version_text(driver) + ", expected " + needed +
           " or later: update it, or build with an older toolkit";
  }
  if (status == cudaSuccess || status == cudaErrorNoDevice) {
    return "the NVIDIA driver shows none (nvidia-smi lists them, CUDA_VISIBLE_DEVICES hides them)";
  }
  return cudaGetErrorString(status);
}

}  // namespace

struct Stream::State {
  int device = 0;
  cudaStream_t stream = nullptr;
};

cudaStream_t stream_of(Stream& stream) { return stream.state().stream; }

Stream::Stream(int device, int) : state_(std::make_unique<State>()) {
  state_->device = device;
  CHECK_CUDA(cudaSetDevice(device));
  CHECK_CUDA(cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, device));
  int shared = 0;
  CHECK_CUDA(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  shared_bytes_ = static_cast<size_t>(shared);
  description_ = describe(device).description;
}

Stream::~Stream() {
  cudaStreamSynchronize(state_->stream);
  cudaStreamDestroy(state_->stream);
}

// CUDA keeps the current device for each thread, and any thread may step an engine.
void* Stream::allocate(size_t bytes) {
  CHECK_CUDA(cudaSetDevice(state_->device));
  void* memory = nullptr;
  CHECK_CUDA(cudaMalloc(&memory, bytes == 0 ? 1 : bytes));
  CHECK_CUDA(cudaMemsetAsync(memory, 0, bytes, state_->stream));
  return memory;
}

void Stream::release(void* memory) noexcept {
  if (memory == nullptr) return;
  cudaSetDevice(state_->device);
  cudaStreamSynchronize(state_->stream);
  cudaFree(memory);
}

void Stream::upload(void* device, const void* host, size_t bytes) {
  CHECK_CUDA(cudaSetDevice(state_->device));
  // The source is pageable memory: CUDA has read it when the call returns.
  CHECK_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, state_->stream));
}

void Stream::download(void* host, const void* device, size_t bytes) {
  CHECK_CUDA(cudaSetDevice(state_->device));
  CHECK_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, state_->stream));
  wait();
}

void Stream::copy(void* to, const void* from, size_t bytes) {
  CHECK_CUDA(cudaSetDevice(state_->device));
  CHECK_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, state_->stream));
}

void Stream::wait() { CHECK_CUDA(cudaStreamSynchronize(state_->stream)); }

std::unique_ptr<Recording> Stream::record(const std::function<void()>& work) {
  cudaStream_t stream = state_->stream;
  CHECK_CUDA(cudaSetDevice(state_->device));
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
  std::unique_ptr<CudaRecording> recording;
  if (nodes > 0) {
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    CHECK_CUDA(status);
    recording = std::make_unique<CudaRecording>(executable);
    replay(*recording);
  } else {
    cudaGraphDestroy(graph);
  }
  return recording;
}

void Stream::replay(const Recording& recording) {
  CHECK_CUDA(cudaSetDevice(state_->device));
  CHECK_CUDA(cudaGraphLaunch(static_cast<const CudaRecording&>(recording).graph, state_->stream));
}

int64_t free_bytes(int device) {
  CHECK_CUDA(cudaSetDevice(device));
  size_t free = 0, all = 0;
  CHECK_CUDA(cudaMemGetInfo(&free, &all));
  return static_cast<int64_t>(free);
}

std::vector<LibraryDevice> list_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    return {{"", "no GPU can be used: " + why_no_device(status)}};
  }
  std::vector<LibraryDevice> devices;
  for (int device = 0; device < count; ++device) devices.push_back(describe(device));
  return devices;
}

}  // namespace onward::cuda
