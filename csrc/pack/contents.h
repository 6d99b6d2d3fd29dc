// What the metadata of a pack says of its model, read from text and checked: spec, dtypes,
// vocabulary, checksums. Knows no file and no byte of a weight.
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
  DecoderSpec spec;                     // as it is written: whoever builds from it validates it
  std::map<std::string, DType> dtypes;  // of the matrices
  DType cache_dtype = DType::f32;
  Vocabulary vocabulary;
  std::map<std::string, uint32_t> checksums;  // by tensor
};

// The layout alone: what else there is may mean something else in another one. PackError that opens
// with `where`, as of the next one.
int64_t read_layout(const std::map<std::string, std::string>& metadata, const std::string& where);
PackContents read_contents(const std::map<std::string, std::string>& metadata,
                           const std::string& where);

}  // namespace onward
