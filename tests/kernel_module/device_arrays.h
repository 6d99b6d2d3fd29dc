// Memory of a backend's device, for the functions that try its verbs: filled from arrays, read
// back, and released with the object.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"

class DeviceArrays {
 public:
  explicit DeviceArrays(onward::Backend& backend) : backend_(backend) {}
  ~DeviceArrays() {
    for (void* memory : taken_) backend_.release(memory);
  }
  DeviceArrays(const DeviceArrays&) = delete;
  DeviceArrays& operator=(const DeviceArrays&) = delete;

  // Memory of zeros.
  void* take(int64_t bytes) {
    taken_.reserve(taken_.size() + 1);
    taken_.push_back(backend_.allocate(static_cast<size_t>(bytes)));
    return taken_.back();
  }
  void* copy_of(const void* bytes, int64_t count) {
    void* const memory = take(count);
    backend_.upload(memory, bytes, static_cast<size_t>(count));
    return memory;
  }
  float* floats(int64_t count) { return static_cast<float*>(take(count * 4)); }
  float* copy_of(const float* values, int64_t count) {
    return static_cast<float*>(copy_of(static_cast<const void*>(values), count * 4));
  }
  float* copy_of(const std::vector<float>& values) {
    return copy_of(values.data(), static_cast<int64_t>(values.size()));
  }

 private:
  onward::Backend& backend_;
  std::vector<void*> taken_;
};
