// The network: one forward pass over a step's rows, read from top to bottom in decoder.cpp. Knows
// sequences only as slices of rows with a place in the cache.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace onward {

// One step: consecutive rows belong to consecutive tokens of each slice.
struct StepBatch {
  std::vector<int32_t> token_ids;     // (rows)
  std::vector<SequenceSlice> slices;  // cover the rows in order
  std::vector<int64_t> logits_rows;   // rows whose logits are wanted
};

class Decoder {
 public:
  // Called between the verbs of a step; it may throw to give the step up.
  using Poll = std::function<void()>;

  Decoder(std::shared_ptr<const Model> model, Backend& backend);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const CacheLayout& cache_layout() const { return layout_; }

  // Runs the step: keys and values of all rows go to the cache, and `logits` receives
  // (logits_rows, vocab_size) float32. An exception leaves behind only cache entries that a
  // repeated step writes again.
  void forward(const StepBatch& batch, const Poll& poll, std::vector<float>& logits);

 private:
  struct Activations;

  LinearInput normed(const float* x, const Vector& norm) const;
  void layer(int64_t index, const StepBatch& batch, int64_t rows, const Poll& poll);
  void head(const StepBatch& batch, std::vector<float>& logits);

  std::shared_ptr<const Model> model_;
  Backend& backend_;
  CacheLayout layout_;
  std::unique_ptr<Activations> activations_;
};

}  // namespace onward
