// Norms, rotation and append of queries, keys and values of one layer, by a backend's verb.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "backend/backend.h"
#include "base/error.h"
#include "device/device.h"
#include "device_arrays.h"
#include "module.h"

namespace py = pybind11;

namespace {

using namespace onward;

HeadNorm::Over parse_over(const std::string& over) {
  if (over == "head") return HeadNorm::Over::head;
  if (over == "heads") return HeadNorm::Over::heads;
  if (over == "all") return HeadNorm::Over::all;
  throw InvalidArgument("kernels: norm_over is '" + over + "', expected head, heads or all");
}

// q (rows, heads, head_dim), k (rows, kv_heads, head_dim), v (rows, kv_heads, value_dim) in one
// row.
std::vector<float> joined_rows(const Floats& q, const Floats& k, const Floats& v, int64_t stride) {
  const int64_t rows = q.shape(0);
  std::vector<float> joined(static_cast<size_t>(rows * stride));
  for (int64_t row = 0; row < rows; ++row) {
    float* to = joined.data() + row * stride;
    for (const Floats* part : {&q, &k, &v}) {
      const int64_t size = part->shape(1) * part->shape(2);
      to = std::copy_n(part->data() + row * size, size, to);
    }
  }
  return joined;
}

// The keys and values of float32 blocks, (rows, kv_heads, head_dim) and (rows, kv_heads,
// value_dim).
py::tuple stored_rows(const CacheLayout& layout, const std::vector<std::vector<float>>& blocks,
                      int64_t first_position, int64_t rows) {
  const CacheLayout::Group& sizes = layout.groups[0];
  Floats keys({rows, sizes.num_kv_heads, sizes.head_dim});
  Floats values({rows, sizes.num_kv_heads, sizes.value_dim});
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t position = first_position + row, slot = position % CacheLayout::kBlockTokens;
    const float* block = blocks[static_cast<size_t>(position / CacheLayout::kBlockTokens)].data();
    for (int64_t head = 0; head < sizes.num_kv_heads; ++head) {
      const float* key = block + layout.keys_offset(0, head) / 4 + slot;
      for (int64_t d = 0; d < sizes.head_dim; ++d) {
        keys.mutable_at(row, head, d) = key[d * CacheLayout::kBlockTokens];
      }
      const float* value =
          block + layout.values_offset(0, head) / 4 + slot * layout.value_stride(sizes);
      std::copy_n(value, sizes.value_dim, values.mutable_data(row, head, 0));
    }
  }
  return py::make_tuple(keys, values);
}

py::tuple rotate_on(const std::string& device, const Floats& q, const Floats& k, const Floats& v,
                    const Floats& cosines, const Floats& sines, int64_t first_position,
                    const std::optional<Floats>& q_norm, const std::optional<Floats>& k_norm,
                    const std::string& norm_over, bool after_rotation, bool v_norm, float eps,
                    float clip, const std::optional<Floats>& q_scales, bool layer_norm,
                    const std::optional<Floats>& q_bias, const std::optional<Floats>& k_bias) {
  for (const Floats* part : {&q, &k, &v}) expect_dimensions("q, k or v", *part, 3);
  const int64_t rows = q.shape(0), heads = q.shape(1), head_dim = q.shape(2);
  const int64_t kv_heads = k.shape(1), value_dim = v.shape(2);
  expect_shape("k", k, {rows, kv_heads, head_dim});
  expect_shape("v", v, {rows, kv_heads, value_dim});
  expect_shape("cosines", cosines, {rows, head_dim / 2});
  expect_shape("sines", sines, {rows, head_dim / 2});
  CacheLayout layout = cache_layout(1, kv_heads, head_dim, DType::f32, "exact", "exact");
  layout.groups[0].value_dim = value_dim;
  const std::unique_ptr<Backend> backend = Device(device).make_backend(2);
  DeviceArrays arrays(*backend);
  const auto norm = [&](const char* name, const std::optional<Floats>& weight,
                        const std::optional<Floats>& bias, int64_t count) {
    HeadNorm made;
    if (!weight) return made;
    made.over = parse_over(norm_over);
    made.after_rotation = after_rotation;
    const int64_t size = made.over == HeadNorm::Over::head ? head_dim : count * head_dim;
    expect_shape(name, *weight, {size});
    made.weight = {size, arrays.copy_of(weight->data(), size)};
    made.layer = layer_norm;
    if (!bias) return made;
    expect_shape(name, *bias, {size});
    made.bias = {size, arrays.copy_of(bias->data(), size)};
    return made;
  };
  RotateArgs args;
  const int64_t k_offset = heads * head_dim, v_offset = k_offset + kv_heads * head_dim;
  const int64_t stride = v_offset + kv_heads * value_dim;
  args.q = arrays.copy_of(joined_rows(q, k, v, stride));
  args.k = args.q + k_offset;
  args.v = args.q + v_offset;
  args.q_stride = args.kv_stride = stride;
  args.cosines = arrays.copy_of(cosines.data(), cosines.size());
  args.sines = arrays.copy_of(sines.data(), sines.size());
  args.clip = clip;
  args.q_norm = norm("q_norm", q_norm, q_bias, heads);
  args.k_norm = norm("k_norm", k_norm, k_bias, kv_heads);
  args.v_norm = v_norm;
  args.norm_eps = eps;
  if (q_scales) {
    expect_shape("q_scales", *q_scales, {rows});
    args.q_scales = arrays.copy_of(q_scales->data(), rows);
  }
  args.num_heads = heads;

  const int64_t count = layout.blocks_for(first_position + rows),
                bytes = layout.exact_block_bytes(0);
  std::vector<void*> memory;
  for (int64_t block = 0; block < count; ++block) memory.push_back(arrays.take(bytes));
  const GroupBlocks blocks = {memory.data(), nullptr};
  const std::vector<SequenceSlice> slices = {{0, rows, first_position, &blocks}};
  const std::vector<BlockEncoding> no_encodings;
  backend->begin_step(layout, slices, no_encodings);
  backend->rotate_and_append(args);

  std::vector<float> qkv(static_cast<size_t>(rows * stride));
  backend->download(qkv.data(), args.q, qkv.size() * sizeof(float));
  Floats rotated({rows, heads, head_dim});
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(qkv.data() + row * stride, heads * head_dim, rotated.mutable_data(row));
  }
  std::vector<std::vector<float>> stored;
  for (void* block : memory) {
    stored.emplace_back(static_cast<size_t>(bytes / 4));
    backend->download(stored.back().data(), block, static_cast<size_t>(bytes));
  }
  const py::tuple keys_values = stored_rows(layout, stored, first_position, rows);
  return py::make_tuple(rotated, keys_values[0], keys_values[1]);
}

}  // namespace

void bind_rotate(py::module_& m) {
  m.def("rotate_on", &rotate_on, py::arg("device"), py::arg("q"), py::arg("k"), py::arg("v"),
        py::arg("cosines"), py::arg("sines"), py::arg("first_position") = 0,
        py::arg("q_norm") = py::none(), py::arg("k_norm") = py::none(),
        py::arg("norm_over") = "head", py::arg("after_rotation") = false, py::arg("v_norm") = false,
        py::arg("eps") = 0.0f, py::arg("clip") = 0.0f, py::arg("q_scales") = py::none(),
        py::arg("layer_norm") = false, py::arg("q_bias") = py::none(),
        py::arg("k_bias") = py::none(),
        "Rotates and appends one sequence from first_position on. q (rows, heads, head_dim), k "
        "(rows, kv_heads, head_dim), v (rows, kv_heads, value_dim). Returns the queries, and the "
        "keys and values as a float32 cache holds them.");
}
