#include "pack/contents.h"

#include <charconv>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "pack/json_text.h"

namespace onward {
namespace {

using Metadata = std::map<std::string, std::string>;

const std::string& text_of(const Metadata& metadata, const char* key, const std::string& where) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) throw PackError(where + ": the metadata has no '" + key + "'");
  return found->second;
}

// A number that fills its text: digits of that base and nothing else.
template <typename Number>
std::optional<Number> whole_number(const std::string& text, int base) {
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

RopeSpec read_rope(const Json& object, const std::string& where) {
  ObjectReader reader(object, where);
  RopeSpec rope;
  for (const Json& frequency : reader.array("inv_freq")) {
    if (!frequency.is_number()) refuse(where + ".inv_freq", frequency, "numbers");
    rope.inv_freq.push_back(static_cast<float>(frequency.get<double>()));
  }
  rope.attention_factor = static_cast<float>(reader.number("attention_factor"));
  rope.theta = reader.number("theta");
  rope.dynamic_factor = reader.number("dynamic_factor");
  rope.dynamic_original_context = reader.integer("dynamic_original_context");
  reader.finish();
  return rope;
}

DecoderSpec read_spec(const std::string& text, const std::string& where) {
  const Json object = parse_object(text, where);
  ObjectReader reader(object, where);
  DecoderSpec spec;
  spec.architecture = reader.text("architecture");
  spec.vocab_size = reader.integer("vocab_size");
  spec.hidden_size = reader.integer("hidden_size");
  spec.intermediate_size = reader.integer("intermediate_size");
  spec.num_layers = reader.integer("num_layers");
  spec.num_heads = reader.integer("num_heads");
  spec.num_kv_heads = reader.integer("num_kv_heads");
  spec.head_dim = reader.integer("head_dim");
  spec.norm_eps = static_cast<float>(reader.number("norm_eps"));
  spec.max_context = reader.integer("max_context");
  spec.rope = read_rope(reader.object("rope"), where + ".rope");
  spec.qkv_bias = reader.flag("qkv_bias");
  spec.output_bias = reader.flag("output_bias");
  spec.mlp_bias = reader.flag("mlp_bias");
  spec.qk_norm = reader.flag("qk_norm");
  spec.tied_head = reader.flag("tied_head");
  for (const Json& window : reader.array("windows")) {
    spec.windows.push_back(as_integer(window, where + ".windows"));
  }
  reader.finish();
  return spec;
}

DType read_dtype(const Json& value, const std::string& where) {
  try {
    if (value.is_string()) return parse_dtype(value.get_ref<const std::string&>());
  } catch (const InvalidArgument&) {
    // told below
  }
  refuse(where, value, "a dtype");
}

void read_dtypes(const std::string& text, const std::string& where, PackContents& contents) {
  const Json object = parse_object(text, where);
  ObjectReader reader(object, where);
  reader.text("name");
  for (const auto& [name, dtype] : reader.object("matrices").items()) {
    contents.dtypes[name] = read_dtype(dtype, where + " of '" + printable(name) + "'");
  }
  contents.cache_dtype = read_dtype(reader.member("cache"), where + " of the cache");
  reader.finish();
}

int32_t read_token(const Json& value, int64_t vocab_size, const std::string& where) {
  const int64_t token = as_integer(value, where);
  if (token < 0 || token >= vocab_size) refuse(where, value, "a token of the vocabulary");
  return static_cast<int32_t>(token);
}

Vocabulary read_vocabulary(const std::string& text, int64_t size, const std::string& where) {
  const Json object = parse_object(text, where);
  ObjectReader reader(object, where);
  Vocabulary vocabulary;
  const Json& bos = reader.member("bos_token_id");
  const Json& pad = reader.member("pad_token_id");
  if (!bos.is_null()) vocabulary.bos_token_id = read_token(bos, size, where + ".bos_token_id");
  if (!pad.is_null()) vocabulary.pad_token_id = read_token(pad, size, where + ".pad_token_id");
  for (const Json& token : reader.array("eos_token_ids")) {
    vocabulary.eos_token_ids.push_back(read_token(token, size, where + ".eos_token_ids"));
  }
  reader.finish();
  return vocabulary;
}

std::map<std::string, uint32_t> read_checksums(const std::string& text, const std::string& where) {
  const Json object = parse_object(text, where);
  std::map<std::string, uint32_t> checksums;
  for (const auto& [name, value] : object.items()) {
    std::optional<uint32_t> sum;
    if (value.is_string() && value.get_ref<const std::string&>().size() == 8) {
      sum = whole_number<uint32_t>(value.get_ref<const std::string&>(), 16);
    }
    if (!sum) refuse(where + " of '" + printable(name) + "'", value, "8 hexadecimal digits");
    checksums[name] = *sum;
  }
  return checksums;
}

}  // namespace

int64_t read_layout(const Metadata& metadata, const std::string& where) {
  const std::string& text = text_of(metadata, "layout", where);
  const std::optional<int64_t> layout = whole_number<int64_t>(text, 10);
  if (!layout)
    throw PackError(where + ": layout is '" + printable(text, 40) + "', expected a number");
  return *layout;
}

PackContents read_contents(const Metadata& metadata, const std::string& where) {
  PackContents contents;
  contents.layout = read_layout(metadata, where);
  contents.spec = read_spec(text_of(metadata, "spec", where), where + ": spec");
  read_dtypes(text_of(metadata, "dtypes", where), where + ": dtypes", contents);
  contents.vocabulary = read_vocabulary(text_of(metadata, "vocabulary", where),
                                        contents.spec.vocab_size, where + ": vocabulary");
  contents.checksums = read_checksums(text_of(metadata, "checksums", where), where + ": checksums");
  return contents;
}

}  // namespace onward
