// The network: one forward pass over a step's rows. decoder.cpp reads from top to bottom.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/activation.h"
#include "backend/backend.h"
#include "model/activations.h"
#include "model/cache_format.h"
#include "model/model.h"

namespace onward {

// One step: consecutive rows belong to consecutive tokens of each slice.
struct StepBatch {
  std::vector<int32_t> token_ids;        // (rows)
  std::vector<SequenceSlice> slices;     // cover the rows in order
  std::vector<BlockEncoding> encodings;  // done in each layer before its attention
  std::vector<int64_t> logits_rows;      // rows that need logits
};

class Decoder {
 public:
  // Called between the verbs of a step; it may throw to abandon the step.
  using Poll = std::function<void()>;

  Decoder(std::shared_ptr<const Model> model, Backend& backend, const CacheFormat& format = {});
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const CacheLayout& cache_layout() const { return layout_; }

  // Runs the step: writes the keys and values of all rows to the cache and leaves the logits of
  // logits_rows on the device until the next step. After an exception the cache holds only entries
  // that a repeated step writes again.
  void forward(const StepBatch& batch, const Poll& poll);
  // Copies rows of the last step's logits, from `first` on: (rows, vocab_size).
  void read_logits(int64_t first, int64_t rows, float* logits) const;
  // Samples from them on the device, if the device samples (Backend::sample_rows).
  std::vector<RowChoice> sample(const std::vector<RowSampling>& rows) const;
  bool samples() const { return backend_.samples_rows(); }

 private:
  LinearInput normed(const float* x, const NormWeights& norm) const;  // rows of hidden_size
  LinearInput normed(const float* x, const NormWeights& norm, int64_t size) const;
  HeadNorm head_norm(const NormWeights& norm) const;  // of q or k
  void upload_inputs(const StepBatch& batch);
  void embed(int64_t rows);
  void embed_layer_inputs(int64_t rows);
  void layer(int64_t index, int64_t rows, bool encodes, const Poll& poll);
  void attention(int64_t index, int64_t rows, bool encodes, const Poll& poll);
  // Queries, keys and values of a layer, before their rotation.
  RotateArgs project_qkv(int64_t index, int64_t rows, const LinearInput& input);
  RotateArgs project_latent(int64_t index, int64_t rows, const LinearInput& input);
  void experts(int64_t index, int64_t rows, const LinearInput& input, const Poll& poll);
  void add_rows_of_block(const NormWeights& norm, int64_t rows);
  void add_layer_input(int64_t index, int64_t rows);
  // Adds a block to the residual stream: its last product, normalised and scaled where the model
  // does that.
  void add_block(const Matrix& weight, const Vector& bias, const float* input,
                 const NormWeights& norm, int64_t rows);
  void head(int64_t rows);

  std::shared_ptr<const Model> model_;
  Backend& backend_;
  CacheLayout layout_;
  int64_t sink_reach_ = 0;  // the last position that sees the sinks at their positions; 0: no sinks
  Gate head_gate_;          // of the layer before the head
  Gate gate_;               // of the MLPs
  std::vector<size_t> rope_of_;  // by layer: the rotary table in Activations
  std::unique_ptr<Activations> activations_;
  int64_t logits_rows_ = 0;  // of the last step
};

}  // namespace onward
