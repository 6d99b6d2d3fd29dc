// Uploads the tables of a step to the device in one transfer: the slices, the slice of each row,
// the lists of blocks, and the blocks to encode.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "cuda/gpu/runtime.h"
#include "cuda/kernels/step.h"

namespace onward::cuda {

class StepTables {
 public:
  explicit StepTables(Stream& stream) : stream_(stream) {}
  ~StepTables();
  StepTables(const StepTables&) = delete;
  StepTables& operator=(const StepTables&) = delete;

  // Fills the tables; view() is valid until the next call. Returns whether the device memory has
  // moved, because recordings that use the old memory are then invalid.
  bool fill(const CacheLayout& layout, const std::vector<SequenceSlice>& slices,
            const std::vector<BlockEncoding>& encodings);
  const StepView& view() const { return view_; }
  // The encodings of one layer group, on the device.
  const BlockEncoding* encodings(int64_t group) const {
    return encodings_ + first_encoding_[static_cast<size_t>(group)];
  }
  int64_t encoding_count(int64_t group) const {
    return first_encoding_[static_cast<size_t>(group) + 1] -
           first_encoding_[static_cast<size_t>(group)];
  }

 private:
  template <typename T>
  int64_t append(const std::vector<T>& values);

  Stream& stream_;
  std::vector<char> bytes_;
  char* device_ = nullptr;
  size_t capacity_ = 0;
  StepView view_ = {};
  const BlockEncoding* encodings_ = nullptr;
  std::vector<int64_t> first_encoding_;  // by group; the last entry is the end
};

}  // namespace onward::cuda
