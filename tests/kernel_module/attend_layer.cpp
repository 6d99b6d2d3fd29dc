// Attention of one layer over given cache blocks, by a backend's verb, with its tasks and threads.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
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

using Blocks = std::vector<std::optional<Bytes>>;

// Copies the blocks to the device. Null for a block that is None.
std::vector<void*> pointers_of(const char* name, const Blocks& blocks, int64_t bytes,
                               DeviceArrays& arrays) {
  std::vector<void*> pointers;
  for (const std::optional<Bytes>& block : blocks) {
    pointers.push_back(nullptr);
    if (!block) continue;
    expect_shape(name, *block, {bytes});
    pointers.back() = arrays.copy_of(static_cast<const void*>(block->data()), bytes);
  }
  return pointers;
}

// A slice: its first position, its tokens, its exact blocks and its coded ones.
using Slice = std::tuple<int64_t, int64_t, Blocks, Blocks>;

Floats attend_layer(const Floats& q, const std::vector<Slice>& slices, int64_t kv_heads,
                    const std::string& dtype, const std::string& key_codec,
                    const std::string& value_codec, int64_t layers, int64_t layer, float scale,
                    int threads, int64_t window, int64_t sink_tokens, int64_t window_blocks,
                    bool exact_first, const std::optional<Floats>& sink_cosines,
                    const std::optional<Floats>& sink_sines, const std::string& device,
                    int64_t value_dim, int64_t chunk, float softcap,
                    const std::optional<Floats>& sink_logits,
                    const std::optional<Floats>& alibi_slopes) {
  expect_dimensions("q", q, 3);
  const int64_t rows = q.shape(0), heads = q.shape(1), head_dim = q.shape(2);
  CacheLayout layout =
      cache_layout(layers, kv_heads, head_dim, parse_dtype(dtype), key_codec, value_codec);
  layout.window_blocks = window_blocks;
  layout.exact_first = exact_first;
  layout.groups[0].window = window;
  layout.groups[0].sink_tokens = sink_tokens;
  layout.groups[0].chunk_tokens = chunk;
  if (value_dim > 0) layout.groups[0].value_dim = value_dim;
  value_dim = layout.groups[0].value_dim;
  if (heads % kv_heads != 0 || layer < 0 || layer >= layers) {
    throw InvalidArgument("kernels: heads do not divide, or there is no such layer");
  }
  const int64_t stride = activation_stride(heads * head_dim);
  const Floats flat(std::vector<int64_t>{rows, heads * head_dim}, q.data());
  const int64_t out_stride = activation_stride(heads * value_dim);
  std::vector<float> out(static_cast<size_t>(rows * out_stride));
  const std::unique_ptr<Backend> backend = Device(device).make_backend(threads);
  DeviceArrays arrays(*backend);
  AttendLayerArgs args;
  args.q = arrays.copy_of(padded_rows(flat, stride));
  args.q_stride = stride;
  args.out = arrays.floats(rows * out_stride);
  args.num_heads = heads;
  args.layer = layer;
  args.scale = scale;
  args.softcap = softcap;
  const auto by_head = [&](const char* name, const std::optional<Floats>& values) {
    if (!values) return Vector{};
    expect_shape(name, *values, {heads});
    return Vector{heads, arrays.copy_of(values->data(), heads)};
  };
  args.sink_logits = by_head("sink_logits", sink_logits);
  args.alibi_slopes = by_head("alibi_slopes", alibi_slopes);
  if (sink_tokens > 0) {
    if (!sink_cosines || !sink_sines) throw InvalidArgument("kernels: sinks without angles");
    expect_shape("sink_cosines", *sink_cosines, {rows, head_dim / 2});
    expect_shape("sink_sines", *sink_sines, {rows, head_dim / 2});
    args.sink_cosines = arrays.copy_of(sink_cosines->data(), sink_cosines->size());
    args.sink_sines = arrays.copy_of(sink_sines->data(), sink_sines->size());
  }
  std::vector<std::vector<void*>> tables;
  std::vector<GroupBlocks> groups;
  std::vector<SequenceSlice> steps;
  tables.reserve(2 * slices.size());
  groups.reserve(slices.size());
  int64_t row = 0;
  for (const auto& [first_position, tokens, exact, coded] : slices) {
    tables.push_back(pointers_of("an exact block", exact, layout.exact_block_bytes(0), arrays));
    tables.push_back(pointers_of("a coded block", coded, layout.coded_block_bytes(0), arrays));
    groups.push_back(
        {tables[tables.size() - 2].data(), layout.coded() ? tables.back().data() : nullptr});
    if (layout.blocks_for(first_position + tokens) > static_cast<int64_t>(exact.size()) ||
        (layout.coded() && exact.size() != coded.size())) {
      throw InvalidArgument("kernels: a slice has fewer blocks than its tokens see");
    }
    steps.push_back({row, tokens, first_position, &groups.back()});
    row += tokens;
  }
  if (row != rows) {
    throw InvalidArgument("kernels: the slices have " + std::to_string(row) + " rows, and q has " +
                          std::to_string(rows));
  }
  {
    const py::gil_scoped_release release;
    const std::vector<BlockEncoding> no_encodings;
    backend->begin_step(layout, steps, no_encodings);
    backend->attend(args);
    backend->download(out.data(), args.out, out.size() * sizeof(float));
  }
  return cut_rows(out.data(), rows, out_stride, heads * value_dim)
      .reshape({rows, heads, value_dim});
}

}  // namespace

void bind_attend_layer(py::module_& m) {
  m.def("attend_layer", &attend_layer, py::arg("q"), py::arg("slices"), py::arg("kv_heads"),
        py::arg("dtype"), py::arg("key_codec"), py::arg("value_codec"), py::arg("layers"),
        py::arg("layer"), py::arg("scale"), py::arg("threads") = 1, py::arg("window") = 0,
        py::arg("sink_tokens") = 0, py::arg("window_blocks") = 0, py::arg("exact_first") = true,
        py::arg("sink_cosines") = py::none(), py::arg("sink_sines") = py::none(),
        py::arg("device") = "cpu", py::arg("value_dim") = 0, py::arg("chunk") = 0,
        py::arg("softcap") = 0.0f, py::arg("sink_logits") = py::none(),
        py::arg("alibi_slopes") = py::none(),
        "Attention of one layer on a device; \"cpu\" runs the instruction set in use. q (rows, "
        "heads, head_dim) holds the rows of the slices one after another. A slice is (first "
        "position, tokens, exact blocks, coded blocks). A block is the bytes that cache_layout.h "
        "describes, or None. sink_logits and alibi_slopes have one number for each head.");
}
