#include "arrays.h"

#include <algorithm>

#include "base/error.h"
#include "cache/codec_names.h"
#include "cpu/select.h"

namespace py = pybind11;

using onward::DType;
using onward::InvalidArgument;

namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + ")";
}

std::vector<int64_t> shape_of(const py::array& array) {
  return {array.shape(), array.shape() + array.ndim()};
}

}  // namespace

void expect_shape(const char* name, const py::array& array, const std::vector<int64_t>& shape) {
  const std::vector<int64_t> found = shape_of(array);
  if (found == shape) return;
  throw InvalidArgument(std::string("kernels: ") + name + " has shape " + shape_text(found) +
                        ", expected " + shape_text(shape));
}

void expect_dimensions(const char* name, const py::array& array, py::ssize_t count) {
  if (array.ndim() == count && array.size() > 0) return;
  throw InvalidArgument(std::string("kernels: ") + name + " has shape " +
                        shape_text(shape_of(array)) + ", expected " + std::to_string(count) +
                        " dimensions, none of them 0");
}

void expect_alike(const char* name, const py::array& array, const py::array& keys) {
  if ((array.flags() & py::array::c_style) != 0 && array.dtype().equal(keys.dtype())) return;
  throw InvalidArgument(std::string("kernels: ") + name +
                        " are strided or of another dtype than the keys");
}

DType stored_dtype(const py::array& keys) {
  const char kind = keys.dtype().kind();
  if (kind == 'f' && keys.itemsize() == 4) return DType::f32;
  if (kind == 'f' && keys.itemsize() == 2) return DType::f16;
  if (kind == 'u' && keys.itemsize() == 2) return DType::bf16;
  throw InvalidArgument("kernels: keys have dtype " + std::string(py::str(keys.dtype())) +
                        ", expected float32, float16, or uint16 for bf16");
}

std::vector<float> padded_rows(const Floats& rows, int64_t width) {
  std::vector<float> padded(static_cast<size_t>(rows.shape(0) * width));
  for (py::ssize_t row = 0; row < rows.shape(0); ++row) {
    std::copy_n(rows.data() + row * rows.shape(1), rows.shape(1), padded.begin() + row * width);
  }
  return padded;
}

Floats cut_rows(const float* padded, int64_t rows, int64_t width, int64_t columns) {
  Floats result({rows, columns});
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(padded + row * width, columns, result.mutable_data() + row * columns);
  }
  return result;
}

const onward::cpu::Kernels& kernels_of(const std::string& isa) {
  return onward::cpu::kernels_named("kernels", isa);
}

onward::CacheLayout cache_layout(int64_t layers, int64_t kv_heads, int64_t head_dim, DType dtype,
                                 const std::string& key_codec, const std::string& value_codec) {
  if (layers < 1 || kv_heads < 1 || head_dim < 2 || head_dim > 576) {
    throw InvalidArgument("kernels: found " + std::to_string(layers) + " layers, " +
                          std::to_string(kv_heads) + " key-value heads and head_dim " +
                          std::to_string(head_dim) +
                          ", expected at least 1, at least 1, and 2 to 576");
  }
  onward::CacheLayout layout;
  layout.dtype = dtype;
  layout.key_codec = onward::kv_codec("kernels: codec of keys", key_codec);
  layout.value_codec = onward::kv_codec("kernels: codec of values", value_codec);
  layout.groups.resize(1);
  layout.groups[0].layers = layers;
  layout.groups[0].num_kv_heads = kv_heads;
  layout.groups[0].head_dim = layout.groups[0].value_dim = head_dim;
  layout.group_of.assign(static_cast<size_t>(layers), 0);
  for (int64_t layer = 0; layer < layers; ++layer) layout.place_of.push_back(layer);
  return layout;
}
