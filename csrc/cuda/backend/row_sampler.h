// Uploads the options of all rows that are sampled on the device, launches the kernel, and
// downloads the chosen tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/row_sampling.h"
#include "cuda/gpu/runtime.h"

namespace onward::cuda {

class RowSampler {
 public:
  explicit RowSampler(Stream& stream) : stream_(stream) {}
  ~RowSampler();
  RowSampler(const RowSampler&) = delete;
  RowSampler& operator=(const RowSampler&) = delete;

  // Backend::sample_rows.
  std::vector<RowChoice> sample(const float* logits, int64_t stride, int64_t vocab_size,
                                const std::vector<RowSampling>& rows);

 private:
  // Device memory that grows to the largest requested size.
  struct Buffer {
    char* memory = nullptr;
    size_t bytes = 0;
  };
  char* grown(Buffer& buffer, size_t bytes);
  template <typename T>
  size_t append(const T* values, size_t count);

  Stream& stream_;
  std::vector<char> bytes_;  // the upload: the rows, then their lists
  Buffer options_;
  Buffer scores_;   // (rows of a launch, vocab_size)
  Buffer choices_;  // (rows)
};

}  // namespace onward::cuda
