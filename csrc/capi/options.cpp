#include "capi/options.h"

#include <string>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cache/codec_names.h"

namespace onward::capi {
namespace {

constexpr size_t kLargestStruct = 4096;
constexpr int32_t kMostThreads = 1024;
constexpr int64_t kMostBytes = int64_t{1} << 60;

int read_threads(int32_t value) {
  read_integer("threads", value, 0, kMostThreads);
  return value == 0 ? std::min(available_processors(), kMostThreads) : value;
}

KvCodec read_codec(const char* name, const char* value) {
  return value == nullptr ? KvCodec::exact : kv_codec(name, value);
}

}  // namespace

void require_size(const char* name, size_t size, size_t known) {
  // The size of every struct is a multiple of 8.
  if (size > sizeof size && size <= kLargestStruct && size % 8 == 0) return;
  throw InvalidArgument(std::string(name) + ": size: found " + std::to_string(size) +
                        ", expected sizeof(onward_" + name + "), which is " +
                        std::to_string(known) + " here");
}

void require_zeros(const char* name, const void* given, size_t size, size_t known) {
  const char* bytes = static_cast<const char*>(given);
  for (size_t at = known; at < size; ++at) {
    if (bytes[at] == 0) continue;
    throw InvalidArgument(std::string(name) + ": byte " + std::to_string(at) +
                          " is set, expected a field that this library knows: up to " +
                          std::to_string(known) + "; it is older than its caller");
  }
}

bool read_flag(const char* name, int32_t value) { return read_integer(name, value, 0, 1) == 1; }

int64_t read_integer(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return value;
  throw InvalidArgument(std::string(name) + ": found " + std::to_string(value) + ", expected " +
                        std::to_string(low) + " to " + std::to_string(high));
}

std::vector<int32_t> read_ids(const char* name, const int32_t* ids, size_t count, size_t most) {
  if (count > most) {
    throw InvalidArgument(std::string(name) + ": has " + std::to_string(count) +
                          " token ids, expected at most " + std::to_string(most));
  }
  if (count > 0 && ids == nullptr) {
    throw InvalidArgument(std::string(name) + ": is null, expected " + std::to_string(count) +
                          " token ids");
  }
  return {ids, ids + count};
}

onward_model_options default_model_options() {
  onward_model_options options{};
  options.size = sizeof options;
  return options;
}

onward_engine_options default_engine_options() {
  const EngineOptions core;
  onward_engine_options options{};
  options.size = sizeof options;
  options.prefill_chunk_tokens = core.prefill_chunk_tokens;
  options.max_sequences = core.max_sequences;
  options.max_context = core.max_context;
  options.kv_window_tokens = core.cache.window_tokens;
  options.kv_sinks = core.cache.exact_first ? 1 : 0;
  options.attention_window = core.cache.attention_window;
  options.prefix_cache = core.prefixes.reuse ? 1 : 0;
  options.prefix_cache_bytes = -1;
  return options;
}

EngineSettings read_engine_options(const onward_engine_options* given) {
  onward_engine_options read = default_engine_options();
  if (given != nullptr) read = read_struct("engine_options", *given, read);
  EngineSettings settings;
  settings.threads = read_threads(read.threads);
  EngineOptions& options = settings.options;
  options.prefill_chunk_tokens =
      read_integer("prefill_chunk_tokens", read.prefill_chunk_tokens, 1, kMostTokens);
  options.max_sequences = read_integer("max_sequences", read.max_sequences, 1, kMostTokens);
  options.max_context = read_integer("max_context", read.max_context, 0, kMostTokens);
  options.cache.keys = read_codec("kv_keys", read.kv_keys);
  options.cache.values = read_codec("kv_values", read.kv_values);
  options.cache.window_tokens =
      read_integer("kv_window_tokens", read.kv_window_tokens, 0, kMostTokens);
  options.cache.exact_first = read_flag("kv_sinks", read.kv_sinks);
  options.cache.attention_window =
      read_integer("attention_window", read.attention_window, 0, kMostTokens);
  read_integer("kv_cache_bytes", read.kv_cache_bytes, 0, kMostBytes);
  if (read.kv_cache_bytes > 0) options.cache_bytes = read.kv_cache_bytes;
  options.prefixes.reuse = read_flag("prefix_cache", read.prefix_cache);
  read_integer("prefix_cache_bytes", read.prefix_cache_bytes, -1, kMostBytes);
  if (read.prefix_cache_bytes >= 0) options.prefixes.kept_bytes = read.prefix_cache_bytes;
  return settings;
}

ModelSettings read_model_options(const onward_model_options* given) {
  onward_model_options read = default_model_options();
  if (given != nullptr) read = read_struct("model_options", *given, read);
  ModelSettings settings;
  settings.threads = read_threads(read.threads);
  settings.options.verify = read_flag("verify", read.verify);
  settings.options.copy = read_flag("copy", read.copy);
  if (read.device != nullptr) settings.device = read.device;
  return settings;
}

}  // namespace onward::capi

void onward_model_options_init_sized(onward_model_options* options, size_t size) {
  onward::capi::init_struct(onward::capi::default_model_options(), options, size);
}

void onward_engine_options_init_sized(onward_engine_options* options, size_t size) {
  onward::capi::init_struct(onward::capi::default_engine_options(), options, size);
}
