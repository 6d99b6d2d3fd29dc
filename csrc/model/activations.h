// The device buffers of a decoder's step. They grow to the largest step so far.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace onward {

// The angles of the rotation of each row, for one rotary table. (rows, head_dim / 2) each.
struct Angles {
  float* cosines = nullptr;  // times the attention factor
  float* sines = nullptr;
  float* sink_cosines = nullptr;  // with sinks (AttendLayerArgs)
  float* sink_sines = nullptr;
};

// Rows are padded (backend.h). A buffer that no layer needs stays null.
class Activations {
 public:
  // ropes: the rotary tables of the model; sinks: whether a layer has sink tokens.
  Activations(Backend& backend, const Model& model, std::vector<RopeSpec> ropes, bool sinks);
  ~Activations();
  Activations(const Activations&) = delete;
  Activations& operator=(const Activations&) = delete;

  // Throws std::bad_alloc.
  void reserve(int64_t rows, int64_t logits_rows);
  // Uploads the angles of the rows of a step. sink_reach: Decoder::sink_reach_.
  void upload_angles(const std::vector<SequenceSlice>& slices, int64_t sink_reach);
  // Uploads the factors of the queries, if the model has a temperature by position.
  void upload_q_scales(const std::vector<SequenceSlice>& slices);

  int64_t moves = 0;                 // changes when a buffer has moved
  int32_t* token_ids = nullptr;      // (rows)
  int32_t* positions = nullptr;      // (rows), with learned positions
  int64_t* logits_index = nullptr;   // (logits_rows): row numbers
  float* x = nullptr;                // (rows, hidden): the residual stream
  float* embedded = nullptr;         // (rows, embedding size), where it is not hidden_size
  float* qkv = nullptr;              // (rows, q | k | v)
  float* q_latent = nullptr;         // (rows, q_rank), with latent attention, as the next four
  float* kv_latent = nullptr;        // (rows, kv_rank | rope_dim)
  float* q_heads = nullptr;          // (rows, num_heads * (nope_dim + rope_dim))
  float* queries = nullptr;          // (rows, num_heads * head_dim)
  float* attended_latent = nullptr;  // (rows, num_heads * kv_rank)
  float* q_scales = nullptr;         // (rows), with a temperature by position
  float* attended = nullptr;         // (rows, num_heads * head_dim)
  float* gated = nullptr;            // (rows, intermediate)
  float* gates = nullptr;            // (rows, gates), of attention or shared experts
  float* block = nullptr;            // (rows, hidden): a block's output before it is added
  float* inner_block = nullptr;      // (rows, hidden): of an MLP beside experts
  float* layer_inputs = nullptr;     // (rows, layers * size)
  float* layer_input = nullptr;      // (rows, size): of one layer
  std::vector<Angles> angles;        // by rotary table
  float* last = nullptr;             // (logits_rows, hidden)
  float* head_rows = nullptr;        // (logits_rows, size), with a layer before the head
  float* logits = nullptr;           // (logits_rows, vocab)

 private:
  template <typename T>
  void grow(T*& buffer, int64_t values);
  void reserve_latent(int64_t rows);

  Backend& backend_;
  const Model& model_;
  std::vector<RopeSpec> ropes_;
  bool sinks_;
  int64_t capacity_rows_ = 0;
  int64_t capacity_logits_rows_ = 0;
};

}  // namespace onward
