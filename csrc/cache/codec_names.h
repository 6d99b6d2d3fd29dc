// Codecs of the cache by name, and the bytes that they take.
#pragma once

#include <cstdint>
#include <string>

#include "backend/kv_codecs.h"
#include "base/dtype.h"

namespace onward {

// InvalidArgument that names the option and lists the codecs.
KvCodec kv_codec(const char* option, const std::string& name);

// Bytes of one key or one value of head_dim numbers with its scales: coded, or in `exact`, a float
// dtype, where the codec is KvCodec::exact.
int64_t kv_vector_bytes(KvCodec codec, DType exact, bool keys, int64_t head_dim);

}  // namespace onward
