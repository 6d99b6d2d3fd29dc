#include "pack/contents.h"

#include <charconv>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "onward/version.h"
#include "pack/json_text.h"

namespace onward {
namespace {

using Metadata = std::map<std::string, std::string>;

const std::string& text_of(const Metadata& metadata, const char* key, const std::string& where) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) throw PackError(where + ": the metadata has no '" + key + "'");
  return found->second;
}

// The number of a text that has digits of this base and nothing else.
template <typename Number>
std::optional<Number> whole_number(const std::string& text, int base) {
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Who wrote a pack, for the message about a member that this version does not know.
std::string unknown_advice(const Metadata& metadata) {
  const auto writer = metadata.find("onward");
  const std::string version = writer == metadata.end() ? "?" : printable(writer->second, 20);
  return "; the pack was written by onward " + version + ", this is onward " ONWARD_VERSION
         ": open it with a newer onward, or pack the model anew";
}

template <SpecStruct Struct>
Struct read_fields(const Json& object, const std::string& where, const std::string& advice);

template <typename Value>
Value read_value(const Json& json, const std::string& where, const std::string& advice) {
  if constexpr (SpecStruct<Value>) {
    return read_fields<Value>(json, where, advice);
  } else if constexpr (IsSpecList<Value>::value) {
    if (!json.is_array()) refuse(where, json, "an array");
    Value values;
    for (const Json& each : json) {
      values.push_back(read_value<typename Value::value_type>(each, where, advice));
    }
    return values;
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return as_text(json, where);
  } else if constexpr (std::is_same_v<Value, bool>) {
    return as_flag(json, where);
  } else if constexpr (std::is_integral_v<Value>) {
    return static_cast<Value>(as_integer(json, where));
  } else {
    return static_cast<Value>(as_number(json, where));
  }
}

// A struct by its table of fields. An absent field has its default.
template <SpecStruct Struct>
Struct read_fields(const Json& object, const std::string& where, const std::string& advice) {
  ObjectReader reader(object, where);
  Struct values;
  for_each_field<Struct>([&](const auto& field) {
    if (!field.required && !reader.has(field.name)) return;
    using Value = typename std::decay_t<decltype(field)>::Type;
    values.*field.member =
        read_value<Value>(reader.member(field.name), where + "." + field.name, advice);
  });
  reader.finish(advice);
  return values;
}

DType read_dtype(const Json& value, const std::string& where) {
  try {
    if (value.is_string()) return parse_dtype(value.get_ref<const std::string&>());
  } catch (const InvalidArgument&) {
    // refused below
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
  const std::string spec_where = where + ": spec";
  contents.spec =
      read_fields<DecoderSpec>(parse_object(text_of(metadata, "spec", where), spec_where),
                               spec_where, unknown_advice(metadata));
  read_dtypes(text_of(metadata, "dtypes", where), where + ": dtypes", contents);
  contents.vocabulary = read_vocabulary(text_of(metadata, "vocabulary", where),
                                        contents.spec.vocab_size, where + ": vocabulary");
  contents.checksums = read_checksums(text_of(metadata, "checksums", where), where + ": checksums");
  return contents;
}

}  // namespace onward
