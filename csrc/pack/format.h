// The format of a pack, and the reader of its container, which needs no model.
//
//   8 bytes      length of the header, little-endian
//   header       JSON, padded with spaces so that the data begins at a multiple of 64
//   data         tensors without a gap, each at a multiple of 64: the file is safetensors
//
// Tensors: each canonical weight (model/model.h) as WeightStore::packed gives it, F32 where it is
// float32 and else U8; "text.KEY" (U8, UTF-8), a text that would make the header slow to read;
// and "padding.N" (U8, zeros) where a tensor does not end at a multiple of 64.
//
// __metadata__, all of it strings:
//
//   format       "onward pack"
//   pack         "1": the version of this format
//   layout       the version of the weights' bytes: WeightStore::packed_layout
//   onward       the version that wrote it
//   name         of the model
//   spec         JSON: the fields of model/decoder_spec.h. An absent one has its default
//   dtypes       JSON: "name" as a caller asks for it, "matrices" by weight, "cache"
//   vocabulary   JSON: "bos_token_id" and "pad_token_id", integer or null, "eos_token_ids"
//   checksums    JSON: CRC-32 in 8 hexadecimal digits, by tensor, of all but padding
//   checksum     the same of the metadata without this entry, by rising key: key NUL value NUL
//   fingerprint  identifies the model of saved conversations (python/onward/load/origin.py)
//
// and texts, here or as a tensor, each only where the model has it: "tokenizer.json",
// "tokenizer_config", "chat_template", "chat_templates", "config", "generation_config".
//
// CRC-32 is in Python's standard library, takes thirty lines here and finds every damage of up to
// 32 bits in a row. No checksum that is stored beside its data protects against malice.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/mapped_file.h"

namespace onward {

constexpr uint64_t kPackAlignment = 64;
constexpr const char* kPackFormat = "onward pack";
constexpr int64_t kPackVersion = 1;
constexpr std::string_view kTextPrefix = "text.";
// The limit of the safetensors library.
constexpr uint64_t kPackHeaderLimit = 100'000'000;
// The limit of one text; the largest published tokenizer.json has about 35 MB.
constexpr uint64_t kPackTextLimit = uint64_t{256} << 20;

// The bytes [begin, end) of a tensor in the file.
struct TensorRange {
  bool numbers = false;  // F32, else U8
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct PackHeader {
  std::map<std::string, TensorRange> weights;
  std::map<std::string, TensorRange> texts;  // by key
  std::map<std::string, std::string> metadata;
};

// Reads and checks the header, and no byte of a tensor: every range lies in the file, begins at a
// multiple of 64 and overlaps no other. PackError, IoError.
PackHeader read_pack_header(const MappedFile& file);

// The value of "checksum" in the metadata.
uint32_t metadata_checksum(const std::map<std::string, std::string>& metadata);
// Eight hexadecimal digits.
std::string checksum_text(uint32_t sum);

}  // namespace onward
