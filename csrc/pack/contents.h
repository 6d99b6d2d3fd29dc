// The metadata of a pack, read from text and checked: spec, dtypes, vocabulary, checksums.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/dtype.h"
#include "model/decoder_spec.h"
#include "pack/pack.h"

namespace onward {

struct PackContents {
  int64_t layout = 0;
  DecoderSpec spec;                     // as written; ModelBuilder validates it
  std::map<std::string, DType> dtypes;  // of the matrices
  DType cache_dtype = DType::f32;
  Vocabulary vocabulary;
  std::map<std::string, uint32_t> checksums;  // by tensor
};

// The layout alone, because other entries may have another meaning in another layout. PackError
// that begins with `where`, also in the next function.
int64_t read_layout(const std::map<std::string, std::string>& metadata, const std::string& where);
PackContents read_contents(const std::map<std::string, std::string>& metadata,
                           const std::string& where);

}  // namespace onward
