// Reads the caller's structs: sizes first, then strings, flags and ranges.
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

// InvalidArgument if `size` is not a size that a struct of `known` bytes here can have in an older
// or newer header.
void require_size(const char* name, size_t size, size_t known);
// InvalidArgument if a field that is unknown here is not zero.
void require_zeros(const char* name, const void* given, size_t size, size_t known);

// A caller's struct; fields that it does not have get their defaults.
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

// Writes the fields that a caller's struct has, except `size`; fields unknown here become zero.
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

// Writes the defaults into the first `size` bytes.
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
// InvalidArgument for a number outside of low to high.
int64_t read_integer(const char* name, int64_t value, int64_t low, int64_t high);
// The `count` ids at `ids`, which may be null only if `count` is 0.
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
