// Brings to the device by what its rows of logits are to be sampled, and the choices back: one
// upload, one download. Knows nothing of how a token is chosen.
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
  // Device memory that grows to the largest size asked for.
  struct Buffer {
    char* memory = nullptr;
    size_t bytes = 0;
  };
  char* grown(Buffer& buffer, size_t bytes);
  template <typename T>
  size_t append(const T* values, size_t count);

  Stream& stream_;
  std::vector<char> bytes_;  // of the upload: rows, then their lists
  Buffer told_;
  Buffer scores_;   // (rows of a launch, vocab_size)
  Buffer choices_;  // (rows)
};

}  // namespace onward::cuda
