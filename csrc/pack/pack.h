// A pack: one file that holds a model as the kernels read it, with what a program has to know of
// its vocabulary and, as texts, all that a tokenizer and a chat template need. What the file looks
// like stands in pack/format.h. Knows no device but by its WeightStore, and no engine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "model/model.h"

namespace onward {

struct PackOptions {
  bool verify = false;  // hold every tensor against its checksum; reads the whole file
  bool copy = false;    // weights go to the store's own memory; else the file stays mapped
  std::optional<DType> cache_dtype;  // of the cache's floats (f32, f16, bf16); none: as packed
};

struct Vocabulary {
  int32_t bos_token_id = -1;  // -1: none
  int32_t pad_token_id = -1;
  std::vector<int32_t> eos_token_ids;
};

struct Pack {
  std::shared_ptr<const Model> model;  // keeps the mapping as long as it lives
  Vocabulary vocabulary;
  std::map<std::string, std::string> texts;  // "tokenizer.json", "chat_template", "config", ...
};

// IoError for what cannot be opened or read; PackError for what is no pack, is damaged, does not
// hold together, or has another layout version (the message says how to pack anew).
Pack open_pack(const std::string& path, std::unique_ptr<WeightStore> store,
               const PackOptions& options = {});

}  // namespace onward
