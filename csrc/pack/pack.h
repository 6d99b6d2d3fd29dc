// A pack: one file that holds a model as the kernels read it, the special ids of its vocabulary and
// the texts that a tokenizer and a chat template need. pack/format.h describes the file.
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
  bool verify = false;  // compare every tensor with its checksum; reads the whole file
  bool copy = false;    // copy the weights to the store's own memory; else the file stays mapped
  std::optional<DType> cache_dtype;  // of exact cache blocks (f32, f16, bf16); none: as packed
};

struct Vocabulary {
  int32_t bos_token_id = -1;  // -1: none
  int32_t pad_token_id = -1;
  std::vector<int32_t> eos_token_ids;
};

struct Pack {
  std::shared_ptr<const Model> model;  // keeps the mapping alive
  Vocabulary vocabulary;
  std::map<std::string, std::string> texts;  // "tokenizer.json", "chat_template", "config", ...
};

// IoError for a file that cannot be opened or read; PackError for a file that is not a pack, is
// damaged or inconsistent, or has another layout version (the message says how to pack again).
Pack open_pack(const std::string& path, std::unique_ptr<WeightStore> store,
               const PackOptions& options = {});

}  // namespace onward
