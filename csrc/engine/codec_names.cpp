#include "engine/codec_names.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace onward {

KvCodec kv_codec(const char* option, const std::string& name) {
  static constexpr std::array<std::pair<const char*, KvCodec>, 6> kCodecs = {
      {{"exact", KvCodec::exact},
       {"int8", KvCodec::int8},
       {"q4_0", KvCodec::q4_0},
       {"turbo4", KvCodec::turbo4},
       {"turbo3", KvCodec::turbo3},
       {"turbo2", KvCodec::turbo2}}};
  for (const auto& [known, codec] : kCodecs) {
    if (name == known) return codec;
  }
  throw InvalidArgument(std::string(option) + ": found '" + name +
                        "', expected exact, int8, q4_0, turbo4, turbo3 or turbo2");
}

}  // namespace onward
