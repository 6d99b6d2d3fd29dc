#include "model/decoder_spec.h"

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"

namespace onward {
namespace {

static_assert(names_all_members<RopeSpec>());
static_assert(names_all_members<NormSpec>());
static_assert(names_all_members<AttentionSpec>());
static_assert(names_all_members<MlpSpec>());
static_assert(names_all_members<ExpertsSpec>());
static_assert(names_all_members<LatentSpec>());
static_assert(names_all_members<LayerInputSpec>());
static_assert(names_all_members<EmbeddingSpec>());
static_assert(names_all_members<HeadSpec>());
static_assert(names_all_members<DecoderSpec>());

std::string text_of(int64_t value) { return std::to_string(value); }
std::string text_of(double value) { return std::to_string(value); }

[[noreturn]] void refuse(const std::string& field, const std::string& found,
                         const std::string& expected) {
  throw InvalidArgument("spec: " + field + " is " + found + ", expected " + expected);
}

template <typename Number>
void check_number(const std::string& field, Number value, SpecRange range) {
  if (!std::isfinite(static_cast<double>(value))) {
    refuse(field, text_of(static_cast<double>(value)), "a finite number");
  }
  if (static_cast<double>(value) >= range.low && static_cast<double>(value) <= range.high) return;
  if constexpr (std::is_integral_v<Number>) {
    refuse(field, text_of(value),
           text_of(static_cast<int64_t>(range.low)) + " to " +
               text_of(static_cast<int64_t>(range.high)));
  } else {
    refuse(field, text_of(static_cast<double>(value)), "at least " + text_of(range.low));
  }
}

void check_choice(const std::string& field, const std::string& value, const char* choices) {
  std::istringstream words(choices);
  std::string expected;
  for (std::string word; words >> word; expected += (expected.empty() ? "" : ", ") + word) {
    if (word == value) return;
  }
  refuse(field, "'" + value + "'", "one of " + expected);
}

// Each value of a struct against the range or the choices in its table.
template <SpecStruct Struct>
void check_ranges(const Struct& values, const std::string& prefix) {
  for_each_field<Struct>([&](const auto& field) {
    const auto& value = values.*field.member;
    const std::string name = prefix + field.name;
    using Value = std::decay_t<decltype(value)>;
    if constexpr (SpecStruct<Value>) {
      check_ranges(value, name + ".");
    } else if constexpr (IsSpecList<Value>::value) {
      using Item = typename Value::value_type;
      for (size_t i = 0; i < value.size(); ++i) {
        if constexpr (SpecStruct<Item>) {
          check_ranges(value[i], name + "[" + std::to_string(i) + "].");
        } else {
          check_number(name, value[i], field.range);
        }
      }
    } else if constexpr (std::is_same_v<Value, std::string>) {
      if (field.choices != nullptr) check_choice(name, value, field.choices);
    } else if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
      check_number(name, value, field.range);
    }
  });
}

void check_length(const char* field, size_t found, int64_t expected) {
  if (static_cast<int64_t>(found) == expected) return;
  refuse(std::string(field) + " length", std::to_string(found), std::to_string(expected));
}

void check_rope(const RopeSpec& rope, const std::string& name, int64_t pairs) {
  check_length((name + ".inv_freq").c_str(), rope.inv_freq.size(), pairs);
  if (rope.dynamic_factor != 0 &&
      !(rope.dynamic_factor >= 1 && rope.dynamic_original_context >= 1 && pairs > 1)) {
    refuse(name + ".dynamic_factor", text_of(rope.dynamic_factor),
           "0, or at least 1 with a dynamic_original_context of at least 1 and a head_dim above 2");
  }
}

void check_latent(const DecoderSpec& spec) {
  const LatentSpec& latent = spec.latent;
  if (latent.kv_rank == 0) return;
  const auto check = [](const char* field, int64_t found, int64_t expected) {
    if (found == expected) return;
    refuse(field, text_of(found), text_of(expected) + ", as the model has latent attention");
  };
  check("head_dim", spec.head_dim, latent.kv_rank + latent.rope_dim);
  check("value_dim", spec.value_dim, latent.kv_rank);
  check("num_kv_heads", spec.num_kv_heads, 1);
  if (latent.nope_dim < 1) refuse("latent.nope_dim", text_of(latent.nope_dim), "at least 1");
  if (latent.rope_dim < 2) refuse("latent.rope_dim", text_of(latent.rope_dim), "at least 2");
  if (latent.value_dim < 1) refuse("latent.value_dim", text_of(latent.value_dim), "at least 1");
  if (spec.attention.scale == 0) {
    refuse("attention.scale", "0", "a factor, as the model has latent attention");
  }
  if (spec.qk_norm || spec.attention.v_norm) {
    refuse("qk_norm", "on", "off, as the model has latent attention");
  }
}

void check_experts(const ExpertsSpec& experts) {
  if (experts.count == 0) return;
  if (experts.chosen < 1 || experts.chosen > experts.count) {
    refuse("experts.chosen", text_of(experts.chosen), "1 to " + text_of(experts.count));
  }
  if (experts.intermediate_size < 1) {
    refuse("experts.intermediate_size", text_of(experts.intermediate_size), "at least 1");
  }
  if (experts.count % experts.groups != 0) {
    refuse("experts.groups", text_of(experts.groups), "a divisor of " + text_of(experts.count));
  }
  const int64_t most = experts.count / experts.groups * experts.chosen_groups;
  if (experts.chosen_groups > experts.groups || most < experts.chosen) {
    refuse(
        "experts.chosen_groups", text_of(experts.chosen_groups),
        "at most experts.groups, and enough of them for " + text_of(experts.chosen) + " experts");
  }
}

}  // namespace

void DecoderSpec::validate() const {
  for (const int64_t table : layer_ropes) {
    check_number("layer_ropes", table, {kNoRope, static_cast<double>(other_ropes.size())});
  }
  check_ranges(*this, "");
  if (head_dim % 2 != 0) refuse("head_dim", text_of(head_dim), "an even number");
  check_experts(experts);
  check_latent(*this);
  if (norms.sums && (norms.after || residual != "sequential")) {
    refuse("norms.sums", "on", "off, with norms.after or a parallel residual");
  }
  if (tied_head && head_inputs() != embedding_size()) {
    refuse("head.size", text_of(head_inputs()),
           text_of(embedding_size()) + ", the width of the embedding, which is also the head");
  }
  if (layer_inputs.size % 16 != 0) {
    refuse("layer_inputs.size", text_of(layer_inputs.size), "a multiple of 16");
  }
  for_each_field<DecoderSpec>([&](const auto& field) {
    using Value = typename std::decay_t<decltype(field)>::Type;
    if constexpr (IsSpecList<Value>::value) {
      const size_t found = (this->*field.member).size();
      if (field.by_layer && found > 0) check_length(field.name, found, num_layers);
    }
  });
  check_layers();
  check_rope(rope, "rope", (head_dim - rotated_from()) / 2);
}

// A layer that has no keys and values uses an earlier layer's. Both layers must see the same
// positions.
void DecoderSpec::check_kv_source(int64_t layer) const {
  const int64_t source = kv_source_of(layer);
  if (source == layer) return;
  const std::string field = "kv_sources of layer " + std::to_string(layer);
  if (source > layer || !has_kv(source)) {
    refuse(field, text_of(source + 1), "an earlier layer with keys and values of its own");
  }
  if (kv_heads_of(source) != kv_heads_of(layer) || head_dim_of(source) != head_dim_of(layer) ||
      window(source) != window(layer) || chunk(source) != chunk(layer)) {
    refuse(field, text_of(source + 1), "a layer with the same kv heads, window and chunk");
  }
}

// The heads of each layer, and the rotary table that it uses.
void DecoderSpec::check_layers() const {
  std::vector<bool> used(other_ropes.size());
  const auto check_other = [&](size_t table, int64_t pairs) {
    check_rope(other_ropes[table], "other_ropes[" + std::to_string(table) + "]", pairs);
    used[table] = true;
  };
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const int64_t heads = heads_of(layer), kv_heads = kv_heads_of(layer), dim = head_dim_of(layer);
    const size_t slopes = attention.alibi_slopes.size();
    if (slopes > 0) check_length("attention.alibi_slopes", slopes, heads);
    const bool own_heads = !layer_heads.empty() || !layer_kv_heads.empty();
    if (heads % kv_heads != 0) {
      refuse(own_heads ? "layer_heads of layer " + std::to_string(layer) : "num_heads",
             text_of(heads), "a multiple of num_kv_heads, which is " + text_of(kv_heads));
    }
    if (dim % 2 != 0) refuse("layer_head_dims", text_of(dim), "an even number");
    if (value_dim_of(layer) > kMaxValueDim) {
      refuse("value_dim of layer " + std::to_string(layer), text_of(value_dim_of(layer)),
             "at most 512");
    }
    check_kv_source(layer);
    const int64_t table = rope_of(layer);
    if (table > 0) {
      check_other(static_cast<size_t>(table - 1), pairs_of(layer));
    } else if (table == 0 && dim != head_dim) {
      refuse("layer_ropes of layer " + std::to_string(layer), "0",
             "a table of other_ropes, as the head_dim of the layer is " + text_of(dim));
    }
  }
  for (size_t table = 0; table < used.size(); ++table) {
    if (!used[table]) check_other(table, (head_dim - rotated_from()) / 2);
  }
}

}  // namespace onward
