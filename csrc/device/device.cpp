#include "device/device.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "cpu/weight_store.h"
#include "onward/version.h"

namespace onward {
namespace {

#ifdef __APPLE__
constexpr const char* kSuffix = ".dylib";
#else
constexpr const char* kSuffix = ".so";
#endif

// The folder of the library that contains this function.
std::filesystem::path own_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0) return {};
  std::error_code ignored;
  const std::filesystem::path own = std::filesystem::canonical(info.dli_fname, ignored);
  return own.parent_path();
}

struct Opened {
  const DeviceLibrary* table = nullptr;  // the functions of the library
  std::string why_not;
};

Opened open_file(const std::filesystem::path& file, const std::string& why_absent) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {nullptr, why_absent};
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: code stays in use
  if (handle == nullptr) return {nullptr, dlerror()};
  const auto entry = reinterpret_cast<DeviceLibraryEntry>(dlsym(handle, kDeviceLibraryEntry));
  if (entry == nullptr) {
    return {nullptr, file.filename().string() + ": exports no " + kDeviceLibraryEntry};
  }
  const DeviceLibrary* library = entry();
  if (std::string(library->version) != ONWARD_VERSION) {
    return {nullptr, file.filename().string() + ": is of version " + library->version +
                         ", expected " ONWARD_VERSION};
  }
  return {library, ""};
}

// The reason when a library is missing.
const char* absent(const std::string& kind) {
  return kind == "cuda"
             ? "this build has no CUDA; one with it: ONWARD_CUDA=ON pip install . "
               "(onward doctor --docs cuda)"
             : "the test build of the CUDA kernels is not here (-DONWARD_CUDA_HOST=ON)";
}

Opened open_library(const std::string& kind) {
  const bool host = kind == "cuda-host";
  const char* named = std::getenv(host ? "ONWARD_CUDA_HOST_LIBRARY" : "ONWARD_CUDA_LIBRARY");
  const std::string file = std::string(host ? "libonward_cuda_host" : "libonward_cuda") + kSuffix;
  return open_file(named != nullptr ? std::filesystem::path(named) : own_folder() / file,
                   absent(kind));
}

// Each library is opened once in a process; a failure is not remembered.
const Opened& library_of(const std::string& kind) {
  static std::mutex mutex;
  static std::map<std::string, Opened> opened;
  const std::lock_guard<std::mutex> lock(mutex);
  Opened& found = opened[kind];
  if (found.table == nullptr) found = open_library(kind);
  return found;
}

// {"cuda", 1} for "cuda:1". The index is -1 if the name is invalid.
std::pair<std::string, int> parse(const std::string& name) {
  if (name == "cpu" || name == "cuda" || name == "cuda-host") return {name, 0};
  const std::string prefix = "cuda:";
  const std::string digits = name.substr(std::min(name.size(), prefix.size()));
  const bool counts = name.rfind(prefix, 0) == 0 && !digits.empty() && digits.size() <= 4 &&
                      digits.find_first_not_of("0123456789") == std::string::npos;
  return {"cuda", counts ? std::atoi(digits.c_str()) : -1};
}

}  // namespace

std::vector<DeviceState> list_devices() {
  std::vector<DeviceState> states = {{"cpu", cpu::make_backend(1)->name().substr(4), ""}};
  for (const std::string kind : {"cuda", "cuda-host"}) {
    const Opened& opened = library_of(kind);
    if (opened.table == nullptr) {
      // The test build is not listed if it is missing: only developers of the kernels have it.
      if (kind == "cuda") states.push_back({kind, "", opened.why_not});
      continue;
    }
    int index = 0;
    for (const LibraryDevice& device : opened.table->devices()) {
      const std::string name = kind == "cuda" ? kind + ":" + std::to_string(index++) : kind;
      states.push_back({name, device.description, device.why_not});
    }
  }
  return states;
}

Device::Device(const std::string& name) {
  const auto [kind, index] = parse(name);
  if (index < 0) {
    throw InvalidArgument("device: is '" + name +
                          "', expected \"cpu\", \"cuda\" or \"cuda:\" and a number");
  }
  name_ = kind == "cuda" ? "cuda:" + std::to_string(index) : kind;
  index_ = index;
  if (kind == "cpu") return;
  const Opened& opened = library_of(kind);
  if (opened.table == nullptr) throw DeviceError("device: " + name_ + ": " + opened.why_not);
  const std::vector<LibraryDevice> devices = opened.table->devices();
  if (index_ >= static_cast<int>(devices.size())) {
    throw DeviceError("device: " + name_ + ": is not there, expected one of the " +
                      std::to_string(devices.size()) + " that are");
  }
  const LibraryDevice& device = devices[static_cast<size_t>(index_)];
  if (!device.why_not.empty()) throw DeviceError("device: " + name_ + ": " + device.why_not);
  library_ = opened.table;
}

std::unique_ptr<Backend> Device::make_backend(int threads) const {
  return library_ ? library_->make_backend(index_, threads) : cpu::make_backend(threads);
}

std::unique_ptr<WeightStore> Device::make_weight_store(int threads) const {
  return library_ ? library_->make_weight_store(index_, threads) : cpu::make_weight_store(threads);
}

int64_t Device::free_bytes() const { return library_ ? library_->free_bytes(index_) : -1; }

DevicePeaks Device::measure(double seconds) const {
  if (library_) return library_->measure(index_, seconds);
  throw InvalidArgument("measure: the device is cpu, expected one with a library of its own");
}

}  // namespace onward
