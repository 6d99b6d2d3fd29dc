// Sizes and names of the cache for Python: its codecs, the bytes of a vector, the layout version.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "backend/cache_layout.h"
#include "base/error.h"
#include "bindings/bindings.h"
#include "cache/codec_names.h"

namespace py = pybind11;

namespace {

using onward::DType;
using onward::KvCodec;

// The names of all codecs but `exact`.
std::vector<std::string> codec_names() {
  std::vector<std::string> names;
  for (const onward::KvCodecInfo& info : onward::kKvCodecs) {
    if (info.codec != KvCodec::exact) names.emplace_back(info.name);
  }
  return names;
}

// `name`: a codec, or a float dtype.
int64_t vector_bytes(const std::string& name, int64_t head_dim, bool keys) {
  if (head_dim < 1) {
    throw onward::InvalidArgument("head_dim: found " + std::to_string(head_dim) +
                                  ", expected at least 1");
  }
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (name == onward::dtype_name(dtype)) {
      return onward::kv_vector_bytes(KvCodec::exact, dtype, keys, head_dim);
    }
  }
  return onward::kv_vector_bytes(onward::kv_codec("kv_dtype", name), DType::f32, keys, head_dim);
}

}  // namespace

void bind_cache(py::module_& m) {
  m.attr("block_layout") = onward::kBlockLayout;
  m.attr("kv_block_tokens") = onward::CacheLayout::kBlockTokens;
  m.def("kv_codecs", &codec_names);
  m.def("kv_vector_bytes", &vector_bytes, py::arg("name"), py::arg("head_dim"), py::arg("keys"));
  m.def("kv_cache_bytes", &onward::kv_cache_bytes, py::arg("num_layers"), py::arg("num_kv_heads"),
        py::arg("head_dim"), py::arg("tokens"), py::arg("bytes_per_value"),
        "Bytes of keys and values: 2 x layers x kv heads x head_dim x tokens x bytes per value.");
}
