// The caller's structs, read: sizes first, then strings, flags and ranges. Knows the structs of the
// C interface and the options of the core; no handle.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/engine.h"
#include "onward/onward_c.h"
#include "pack/pack.h"

namespace onward::capi {

// InvalidArgument where a struct of `size` bytes cannot be one of ours, `known` bytes long: older
// ones are shorter, newer ones longer.
void require_size(const char* name, size_t size, size_t known);
// InvalidArgument where a field that is not known here is not zero.
void require_zeros(const char* name, const void* given, size_t size, size_t known);

// A caller's struct, with the defaults of what it does not know.
template <typename Struct>
Struct read_struct(const char* name, const Struct& given, const Struct& defaults) {
  size_t size = 0;
  std::memcpy(&size, &given, sizeof size);
  require_size(name, size, sizeof(Struct));
  require_zeros(name, &given, size, sizeof(Struct));
  Struct read = defaults;
  std::memcpy(static_cast<void*>(&read), &given, std::min(size, sizeof(Struct)));
  return read;
}

// What a caller's struct has room for, its `size` left as it is; zeros where it knows more.
template <typename Struct>
void write_struct(const char* name, const Struct& found, Struct* given) {
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  require_size(name, size, sizeof(Struct));
  const size_t known = std::min(size, sizeof(Struct));
  auto* bytes = reinterpret_cast<char*>(given);
  std::memcpy(bytes + sizeof size, reinterpret_cast<const char*>(&found) + sizeof size,
              known - sizeof size);
  std::memset(bytes + known, 0, size - known);
}

// The defaults, into as many bytes as there are.
template <typename Struct>
void init_struct(const Struct& defaults, Struct* given, size_t size) noexcept {
  if (given == nullptr || size < sizeof size) return;
  const size_t known = std::min(size, sizeof(Struct));
  auto* bytes = reinterpret_cast<char*>(given);
  std::memcpy(bytes, &defaults, known);
  std::memset(bytes + known, 0, size - known);
  std::memcpy(bytes, &size, sizeof size);
}

bool read_flag(const char* name, int32_t value);
// InvalidArgument for a number outside.
int64_t read_integer(const char* name, int64_t value, int64_t low, int64_t high);
// `count` ids at `ids`; null goes with 0 alone.
std::vector<int32_t> read_ids(const char* name, const int32_t* ids, size_t count, size_t most);

constexpr int64_t kMostTokens = INT32_MAX;

onward_model_options default_model_options();
onward_engine_options default_engine_options();
onward_sampling default_sampling();
onward_beams default_beams();
onward_request default_request();

struct EngineSettings {
  EngineOptions options;
  int threads = 1;
};
struct ModelSettings {
  PackOptions options;
  int threads = 1;
  std::string device = "cpu";
};
// Null: the defaults.
EngineSettings read_engine_options(const onward_engine_options* given);
ModelSettings read_model_options(const onward_model_options* given);

}  // namespace onward::capi
