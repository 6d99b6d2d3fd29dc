#include "cache/codec_names.h"

#include "backend/cache_layout.h"
#include "base/error.h"

namespace onward {
namespace {

constexpr bool in_order() {
  for (size_t i = 0; i < kKvCodecCount; ++i) {
    if (static_cast<size_t>(kKvCodecs[i].codec) != i) return false;
  }
  return true;
}
static_assert(in_order(), "kKvCodecs has the order of the enum");

std::string listed_names() {
  std::string names;
  for (size_t i = 0; i < kKvCodecCount; ++i) {
    names += (i == 0 ? "" : i + 1 < kKvCodecCount ? ", " : " or ");
    names += kKvCodecs[i].name;
  }
  return names;
}

}  // namespace

KvCodec kv_codec(const char* option, const std::string& name) {
  for (const KvCodecInfo& info : kKvCodecs) {
    if (name == info.name) return info.codec;
  }
  throw InvalidArgument(std::string(option) + ": found '" + name + "', expected " + listed_names());
}

int64_t kv_vector_bytes(KvCodec codec, DType exact, bool keys, int64_t head_dim) {
  CacheLayout layout;
  layout.dtype = exact;
  layout.key_codec = layout.value_codec = codec;
  CacheLayout::Group of;
  of.head_dim = of.value_dim = head_dim;
  const int64_t block = keys ? layout.key_codes_bytes(of) + layout.key_scales_bytes(of)
                             : layout.value_codes_bytes(of) + layout.value_scales_bytes(of);
  return block / CacheLayout::kBlockTokens;
}

}  // namespace onward
