#include "model/cache_format.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"

namespace onward {
namespace {

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
  if (streamed > 0 && spec.latent.kv_rank > 0) {
    throw InvalidArgument(
        "attention_window: this model has latent attention, expected keys that rotate whole");
  }
  if (streamed > 0 && !layout.exact_first) {
    throw InvalidArgument(
        "kv_sinks: is off, expected on with attention_window, which needs the first tokens");
  }
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    if (!spec.has_kv(layer)) {
      const auto source = static_cast<size_t>(spec.kv_source_of(layer));
      layout.group_of.push_back(layout.group_of[source]);
      layout.place_of.push_back(layout.place_of[source]);
      continue;
    }
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

}  // namespace onward
