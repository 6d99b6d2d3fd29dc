#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "model/rope.h"

namespace onward {
namespace {

LinearInput plain(const float* x) { return {x, Vector{}, 0, 0}; }

// Radians a token: pairs that rotate faster than this complete a turn inside the averaging window,
// so their mean carries no information. 1/100 to 1/2000 measured nearly as well (docs/numerics.md).
constexpr float kSlowestUncentred = 1.0f / 500;
constexpr int64_t kSmallestCodedHead = 32, kLargestCodedHead = 256;

// What a layer sees and the sizes of its kv heads, without a number of layers. streamed: the window
// of the engine, which sinks go with; 0: none. A layer with a chunk or a smaller window of its own
// keeps it, because it never sees the first tokens of a long text.
CacheLayout::Group layer_group(const DecoderSpec& spec, int64_t layer, int64_t streamed) {
  CacheLayout::Group group;
  group.num_kv_heads = spec.kv_heads_of(layer);
  group.head_dim = spec.head_dim_of(layer);
  group.value_dim = spec.value_dim_of(layer);
  group.window = spec.window(layer);
  group.chunk_tokens = spec.chunk(layer);
  const bool reaches = group.window == 0 || group.window > streamed;
  if (streamed > 0 && group.chunk_tokens == 0 && reaches) {
    group.window = streamed;
    group.sink_tokens = CacheFormat::kSinkTokens;
  }
  return group;
}

void check_coded_heads(const CacheLayout::Group& group) {
  if (group.head_dim < kSmallestCodedHead || group.head_dim > kLargestCodedHead) {
    throw InvalidArgument("kv_dtype: this model's heads are of " + std::to_string(group.head_dim) +
                          " values, expected 32 to 256 for a coded cache");
  }
  if (group.value_dim != group.head_dim) {
    throw InvalidArgument("kv_dtype: this model has keys of " + std::to_string(group.head_dim) +
                          " numbers and values of " + std::to_string(group.value_dim) +
                          ", expected equal sizes for a coded cache; use f32, f16 or bf16");
  }
}

}  // namespace

CacheLayout make_cache_layout(const Model& model, const CacheFormat& format) {
  const DecoderSpec& spec = model.spec;
  CacheLayout layout;
  layout.dtype = model.cache_dtype;
  layout.key_codec = format.keys;
  layout.value_codec = format.values;
  layout.exact_first = format.exact_first || !layout.coded();
  layout.window_blocks = layout.blocks_for(format.window_tokens);
  const std::vector<float>& turns = spec.rope.inv_freq;
  const auto fast = [](float frequency) { return frequency >= kSlowestUncentred; };
  layout.first_centred_pair = turns.rend() - std::find_if(turns.rbegin(), turns.rend(), fast);
  const int64_t streamed = format.attention_window;
  if (streamed > 0 && spec.rope.dynamic_factor != 0) {
    throw InvalidArgument(
        "attention_window: this model's rotary positions are scaled by the length of the text, "
        "expected positions that do not depend on it");
  }
  if (streamed > 0 && !layout.exact_first) {
    throw InvalidArgument(
        "kv_sinks: is off, expected on with attention_window, which needs the first tokens");
  }
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const CacheLayout::Group own = layer_group(spec, layer, streamed);
    if (layout.coded()) check_coded_heads(own);
    const auto same = [&](const CacheLayout::Group& group) { return group.same_shape(own); };
    auto group = std::find_if(layout.groups.begin(), layout.groups.end(), same);
    if (group == layout.groups.end()) group = layout.groups.insert(layout.groups.end(), own);
    layout.group_of.push_back(group - layout.groups.begin());
    layout.place_of.push_back(group->layers++);
  }
  return layout;
}

// Device buffers of one step, grown to the largest step so far. Rows are padded (backend.h).
struct Decoder::Activations {
  Activations(Backend& backend, bool sinks, bool identity)
      : backend(backend), sinks(sinks), identity(identity) {}
  ~Activations() { release(); }

  void reserve(const Model& model, int64_t rows, int64_t logits_rows) {
    const DecoderSpec& spec = model.spec;
    if (rows > capacity_rows) {
      // The widest layer.
      int64_t qkv_width = 0, attended_width = 0, gated_width = 0, half = 0;
      for (int64_t index = 0; index < spec.num_layers; ++index) {
        const LayerWeights& layer = model.layers[static_cast<size_t>(index)];
        qkv_width = std::max(qkv_width, layer.qkv.outputs);
        attended_width = std::max(attended_width, layer.o.inputs);
        gated_width = std::max(gated_width, layer.down.inputs);
        half = std::max(half, spec.head_dim_of(index) / 2);
      }
      capacity_rows = 0;
      grow(token_ids, rows);
      grow(x, rows * model.embed.inputs);
      grow(qkv, rows * qkv_width);
      grow(attended, rows * attended_width);
      grow(gated, rows * gated_width);
      grow(cosines, rows * half);
      grow(sines, rows * half);
      if (sinks) {
        grow(sink_cosines, rows * half);
        grow(sink_sines, rows * half);
      }
      if (identity) {
        grow(ones, rows * half);
        grow(zeros, rows * half);
      }
      capacity_rows = rows;
      ++moves;
    }
    if (logits_rows > capacity_logits_rows) {
      capacity_logits_rows = 0;
      grow(logits_index, logits_rows);
      grow(last, logits_rows * model.head.inputs);
      grow(logits, logits_rows * model.head.outputs);
      capacity_logits_rows = logits_rows;
      ++moves;
    }
  }

  Backend& backend;
  bool sinks;
  bool identity;  // some layers do not rotate
  int64_t capacity_rows = 0;
  int64_t capacity_logits_rows = 0;
  int64_t moves = 0;                // changes when a buffer has moved
  int32_t* token_ids = nullptr;     // (rows)
  int64_t* logits_index = nullptr;  // (logits_rows): row numbers
  float* x = nullptr;               // (rows, hidden): the residual stream
  float* qkv = nullptr;             // (rows, q | k | v)
  float* attended = nullptr;        // (rows, num_heads * head_dim)
  float* gated = nullptr;           // (rows, intermediate)
  float* cosines = nullptr;         // (rows, head_dim / 2)
  float* sines = nullptr;           // (rows, head_dim / 2)
  float* sink_cosines = nullptr;    // (rows, head_dim / 2), with sinks
  float* sink_sines = nullptr;
  float* ones = nullptr;   // (rows, head_dim / 2), with identity: the rotation by no angle
  float* zeros = nullptr;
  float* last = nullptr;    // (logits_rows, hidden)
  float* logits = nullptr;  // (logits_rows, vocab)

 private:
  template <typename T>
  void grow(T*& buffer, int64_t values) {
    backend.release(buffer);
    buffer = nullptr;
    buffer = static_cast<T*>(backend.allocate(static_cast<size_t>(values) * sizeof(T)));
  }
  void release() {
    for (float* buffer : {x, qkv, attended, gated, cosines, sines, sink_cosines, sink_sines, ones,
                          zeros, last, logits}) {
      backend.release(buffer);
    }
    backend.release(token_ids);
    backend.release(logits_index);
  }
};

Decoder::Decoder(std::shared_ptr<const Model> model, Backend& backend, const CacheFormat& format)
    : model_(std::move(model)), backend_(backend), layout_(make_cache_layout(*model_, format)) {
  backend_.check(layout_);
  for (const CacheLayout::Group& group : layout_.groups) {
    if (group.sink_tokens > 0) sink_reach_ = group.window + group.sink_tokens - 1;
  }
  bool identity = false;
  for (int64_t layer = 0; layer < model_->spec.num_layers; ++layer) {
    identity = identity || model_->spec.rope_of(layer) == DecoderSpec::kNoRope;
  }
  activations_ = std::make_unique<Activations>(backend, sink_reach_ > 0, identity);
}

Decoder::~Decoder() = default;

void Decoder::forward(const StepBatch& batch, const Poll& poll) {
  const int64_t rows = static_cast<int64_t>(batch.token_ids.size());
  logits_rows_ = static_cast<int64_t>(batch.logits_rows.size());
  Activations& a = *activations_;
  a.reserve(*model_, rows, logits_rows_);

  upload_inputs(batch);
  backend_.begin_step(layout_, batch.slices, batch.encodings);
  backend_.run_step({this, a.moves, rows, logits_rows_}, [&] {
    backend_.embed(model_->embed, a.token_ids, rows, a.x);
    for (int64_t index = 0; index < model_->spec.num_layers; ++index) {
      layer(index, rows, !batch.encodings.empty(), poll);
    }
    poll();
    if (logits_rows_ > 0) head(logits_rows_);
  });
}

void Decoder::read_logits(int64_t first, int64_t rows, float* logits) const {
  const int64_t vocab_size = model_->spec.vocab_size;
  for (int64_t row = 0; row < rows; ++row) {
    backend_.download(logits + row * vocab_size,
                      activations_->logits + (first + row) * model_->head.outputs,
                      static_cast<size_t>(vocab_size) * sizeof(float));
  }
}

std::vector<RowChoice> Decoder::sample(const std::vector<RowSampling>& rows) const {
  return backend_.sample_rows(activations_->logits, model_->head.outputs, model_->spec.vocab_size,
                              rows);
}

void Decoder::upload_inputs(const StepBatch& batch) {
  const auto upload = [&](auto* device, const auto& values) {
    if (!values.empty()) backend_.upload(device, values.data(), values.size() * sizeof(*device));
  };
  upload(activations_->token_ids, batch.token_ids);
  upload(activations_->logits_index, batch.logits_rows);
  upload_rope(batch);
}

void Decoder::upload_rope(const StepBatch& batch) {
  const RopeSpec& rope = model_->spec.rope;
  std::vector<float> cosines, sines, sink_cosines, sink_sines;  // (rows, head_dim / 2)
  for (const SequenceSlice& slice : batch.slices) {
    for (int64_t token = 0; token < slice.tokens; ++token) {
      const int64_t position = slice.first_position + token;
      append_rope(rope, position, cosines, sines);
      if (sink_reach_ == 0) continue;
      append_turn(rope, position, std::min(position, sink_reach_), sink_cosines, sink_sines);
    }
  }
  const auto upload = [&](float* device, const std::vector<float>& values) {
    if (!values.empty()) backend_.upload(device, values.data(), values.size() * sizeof(float));
  };
  upload(activations_->cosines, cosines);
  upload(activations_->sines, sines);
  upload(activations_->sink_cosines, sink_cosines);
  upload(activations_->sink_sines, sink_sines);
  if (!activations_->identity) return;
  upload(activations_->ones, std::vector<float>(cosines.size(), 1.0f));
  upload(activations_->zeros, std::vector<float>(cosines.size(), 0.0f));
}

LinearInput Decoder::normed(const float* x, const Vector& norm) const {
  return {x, norm, model_->spec.norm_eps, model_->spec.hidden_size};
}

void Decoder::layer(int64_t index, int64_t rows, bool encodes, const Poll& poll) {
  const DecoderSpec& spec = model_->spec;
  const LayerWeights& w = model_->layers[static_cast<size_t>(index)];
  Activations& a = *activations_;
  const bool rotates = spec.rope_of(index) != DecoderSpec::kNoRope;

  poll();
  backend_.linear(w.qkv, w.qkv_bias, normed(a.x, w.attention_norm), rows, false, a.qkv);

  RotateArgs rotate;
  rotate.qkv = a.qkv;
  rotate.qkv_stride = w.qkv.outputs;
  rotate.k_offset = w.qkv.offsets[1];
  rotate.v_offset = w.qkv.offsets[2];
  rotate.cosines = rotates ? a.cosines : a.ones;
  rotate.sines = rotates ? a.sines : a.zeros;
  rotate.q_norm.weight = w.q_norm;
  rotate.k_norm.weight = w.k_norm;
  rotate.norm_eps = spec.norm_eps;
  rotate.num_heads = spec.heads_of(index);
  rotate.layer = index;
  backend_.rotate_and_append(rotate);
  const int64_t group = layout_.group_of[static_cast<size_t>(index)];
  if (encodes) backend_.encode(index);

  AttendLayerArgs attend;
  attend.qkv = a.qkv;
  attend.qkv_stride = w.qkv.outputs;
  attend.out = a.attended;
  attend.num_heads = spec.heads_of(index);
  attend.layer = index;
  if (layout_.groups[static_cast<size_t>(group)].sink_tokens > 0) {
    attend.sink_cosines = rotates ? a.sink_cosines : a.ones;
    attend.sink_sines = rotates ? a.sink_sines : a.zeros;
  }
  attend.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim_of(index))));
  poll();
  backend_.attend(attend);
  poll();
  backend_.linear(w.o, w.o_bias, plain(a.attended), rows, true, a.x);

  poll();
  backend_.gated_linear(w.gate_up, w.gate_up_bias, normed(a.x, w.mlp_norm), rows, a.gated);
  poll();
  backend_.linear(w.down, w.down_bias, plain(a.gated), rows, true, a.x);
}

void Decoder::head(int64_t rows) {
  const Matrix& weight = model_->head;
  Activations& a = *activations_;
  backend_.gather_rows(a.x, a.logits_index, rows, weight.inputs, a.last);
  backend_.linear(weight, Vector{}, normed(a.last, model_->norm), rows, false, a.logits);
}

}  // namespace onward
