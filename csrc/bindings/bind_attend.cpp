// Attention of a layer over given cache blocks, and how fast it is, in the submodule `kernels`:
// what the backend's verb does, tasks and threads and all. For tests and benchmarks; knows nothing
// of models, nor of how codes come to be.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/half.h"
#include "bindings/bindings.h"
#include "bindings/device_arrays.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "device/device.h"

namespace py = pybind11;

namespace {

using namespace onward;

using Floats = py::array_t<float, py::array::c_style>;
using Bytes = py::array_t<uint8_t, py::array::c_style>;
using Blocks = std::vector<std::optional<Bytes>>;

template <class Value>
Value named(const char* what, const std::string& name, const std::map<std::string, Value>& all) {
  const auto found = all.find(name);
  if (found != all.end()) return found->second;
  throw InvalidArgument(std::string("kernels: unknown ") + what + " '" + name + "'");
}

CacheLayout layout_of(int64_t layers, int64_t kv_heads, int64_t head_dim, const std::string& dtype,
                      const std::string& key_codec, const std::string& value_codec) {
  static const std::map<std::string, DType> kDTypes = {
      {"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}};
  static const std::map<std::string, KvCodec> kCodecs = {
      {"exact", KvCodec::exact},   {"int8", KvCodec::int8},     {"q4_0", KvCodec::q4_0},
      {"turbo4", KvCodec::turbo4}, {"turbo3", KvCodec::turbo3}, {"turbo2", KvCodec::turbo2}};
  if (layers < 1 || kv_heads < 1 || head_dim < 2 || head_dim > 512) {
    throw InvalidArgument("kernels: found " + std::to_string(layers) + " layers, " +
                          std::to_string(kv_heads) + " key-value heads and head_dim " +
                          std::to_string(head_dim) +
                          ", expected at least 1, at least 1, and 2 to 512");
  }
  CacheLayout layout;
  layout.num_kv_heads = kv_heads;
  layout.head_dim = head_dim;
  layout.dtype = named("dtype", dtype, kDTypes);
  layout.key_codec = named("codec", key_codec, kCodecs);
  layout.value_codec = named("codec", value_codec, kCodecs);
  layout.groups.resize(1);
  layout.groups[0].layers = layers;
  layout.group_of.assign(static_cast<size_t>(layers), 0);
  for (int64_t layer = 0; layer < layers; ++layer) layout.place_of.push_back(layer);
  return layout;
}

// Where the blocks lie on the device: null where none is given.
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
                    const std::optional<Floats>& sink_sines, const std::string& device) {
  if (q.ndim() != 3) throw InvalidArgument("kernels: q has to have three dimensions");
  const int64_t rows = q.shape(0), heads = q.shape(1), head_dim = q.shape(2);
  CacheLayout layout = layout_of(layers, kv_heads, head_dim, dtype, key_codec, value_codec);
  layout.window_blocks = window_blocks;
  layout.exact_first = exact_first;
  layout.groups[0].window = window;
  layout.groups[0].sink_tokens = sink_tokens;
  if (heads % kv_heads != 0 || layer < 0 || layer >= layers) {
    throw InvalidArgument("kernels: heads do not divide, or there is no such layer");
  }
  const int64_t stride = activation_stride(heads * head_dim);
  AlignedBuffer in(static_cast<size_t>(rows * stride) * 4);
  AlignedBuffer out(static_cast<size_t>(rows * stride) * 4);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(q.data() + row * heads * head_dim, heads * head_dim,
                in.data<float>() + row * stride);
  }
  const std::unique_ptr<Backend> backend = Device(device).make_backend(threads);
  DeviceArrays arrays(*backend);
  AttendLayerArgs args;
  args.qkv = arrays.copy_of(in.data<float>(), rows * stride);
  args.qkv_stride = stride;
  args.out = static_cast<float*>(arrays.take(rows * stride * 4));
  args.num_heads = heads;
  args.layer = layer;
  args.scale = scale;
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
  if (row != rows) throw InvalidArgument("kernels: the slices have other rows than q");
  {
    const py::gil_scoped_release release;
    const std::vector<BlockEncoding> no_encodings;
    backend->begin_step(layout, steps, no_encodings);
    backend->attend(args);
    backend->download(out.data(), args.out, out.bytes());
  }
  Floats result({rows, heads, head_dim});
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(out.data<float>() + r * stride, heads * head_dim,
                result.mutable_data() + r * heads * head_dim);
  }
  return result;
}

// A cache of one sequence, block by block as the engine takes them, filled with something.
class FilledCache {
 public:
  // For the last `rows` of `positions`: what any of them sees exactly, and what as codes.
  FilledCache(Backend& backend, CacheLayout cache_layout, int64_t positions, int64_t rows)
      : layout(std::move(cache_layout)), backend_(backend) {
    const int64_t blocks = layout.blocks_for(positions);
    const int64_t first = (positions - rows) / CacheLayout::kBlockTokens, last = blocks - 1;
    for (int64_t b = 0; b < blocks; ++b) {
      const bool is_coded = layout.coded_begin() <= b && b < layout.coded_end(last);
      const bool is_exact = b < layout.coded_begin() || b >= layout.coded_end(first);
      exact.push_back(is_exact ? take(layout.exact_block_bytes(0)) : nullptr);
      coded.push_back(is_coded ? take(layout.coded_block_bytes(0)) : nullptr);
      if (is_coded) fill_codes(static_cast<char*>(coded.back()));
      if (is_exact) {
        fill_numbers(static_cast<char*>(exact.back()), layout.exact_block_bytes(0));
      }
    }
  }
  ~FilledCache() {
    for (void* block : taken_) backend_.release(block);
  }
  FilledCache(const FilledCache&) = delete;
  FilledCache& operator=(const FilledCache&) = delete;

  CacheLayout layout;
  std::vector<void*> exact;
  std::vector<void*> coded;
  int64_t bytes = 0;

 private:
  void* take(int64_t size) {
    taken_.push_back(backend_.allocate(static_cast<size_t>(size)));
    bytes += size;
    return taken_.back();
  }
  uint32_t next() { return state_ = state_ * 1664525u + 1013904223u; }
  void fill_numbers(char* block, int64_t size) {
    for (int64_t i = 0; i < size; i += layout.value_bytes()) {
      const float x = static_cast<float>(static_cast<int32_t>(next())) * 0x1p-31f;
      const uint16_t half = layout.dtype == DType::f16 ? float_to_f16(x) : float_to_bf16(x);
      if (layout.dtype == DType::f32) {
        std::memcpy(block + i, &x, sizeof x);
      } else {
        std::memcpy(block + i, &half, sizeof half);
      }
    }
  }
  // Any bytes are codes; an exact side is made of numbers; all scales are one small number.
  void fill_codes(char* block) {
    const int64_t size = layout.coded_block_bytes(0);
    for (int64_t i = 0; i + 4 <= size; i += 4) {
      const uint32_t word = next() >> 8 | next() << 16 | 0x01010101;
      std::memcpy(block + i, &word, sizeof word);
    }
    const uint16_t scale = float_to_f16(0x1p-8f);
    for (int64_t layer = 0; layer < layout.groups[0].layers; ++layer) {
      for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
        if (layout.key_codec == KvCodec::exact) {
          fill_numbers(block + layout.key_codes_offset(layer, head), layout.key_codes_bytes());
        }
        if (layout.value_codec == KvCodec::exact) {
          fill_numbers(block + layout.value_codes_offset(layer, head), layout.value_codes_bytes());
        }
        char* scales = block + layout.key_scales_offset(layer, head);
        const int64_t scale_bytes = layout.key_scales_bytes() + layout.value_scales_bytes();
        for (int64_t i = 0; i < scale_bytes; i += 2) std::memcpy(scales + i, &scale, 2);
      }
    }
  }

  Backend& backend_;
  std::vector<void*> taken_;
  uint32_t state_ = 1;
};

// Of each cache: the seconds of each round and the bytes of all its blocks.
std::vector<std::pair<std::vector<double>, int64_t>> attend_rate(
    const std::vector<std::tuple<std::string, std::string, std::string>>& caches, int64_t layers,
    int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t depth, int64_t rows, int threads,
    int64_t window_blocks, int rounds) {
  if (rows < 1 || depth < rows || heads % kv_heads != 0 || rounds < 1) {
    throw InvalidArgument("kernels: heads do not divide, or there are more rows than positions");
  }
  const py::gil_scoped_release release;
  const std::unique_ptr<Backend> backend = cpu::make_backend(threads);
  std::vector<std::unique_ptr<FilledCache>> filled;
  for (const auto& [dtype, key_codec, value_codec] : caches) {
    CacheLayout layout = layout_of(layers, kv_heads, head_dim, dtype, key_codec, value_codec);
    layout.window_blocks = window_blocks;
    filled.push_back(std::make_unique<FilledCache>(*backend, std::move(layout), depth, rows));
  }
  const int64_t stride = activation_stride(heads * head_dim);
  AlignedBuffer q(static_cast<size_t>(rows * stride) * 4),
      out(static_cast<size_t>(rows * stride) * 4);
  for (int64_t i = 0; i < rows * stride; ++i) {
    q.data<float>()[i] = static_cast<float>(i * 7919 % 1000) * 0.002f - 1.0f;
  }
  // Between two rounds a model's weights pass through the caches.
  const std::vector<uint64_t> weights((int64_t{96} << 20) / sizeof(uint64_t), 1);
  uint64_t sink = 0;
  const std::vector<BlockEncoding> no_encodings;
  std::vector<std::pair<std::vector<double>, int64_t>> results(filled.size());
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < filled.size(); ++i) {
      FilledCache& cache = *filled[i];
      const GroupBlocks blocks = {cache.exact.data(), cache.coded.data()};
      const std::vector<SequenceSlice> slices = {{0, rows, depth - rows, &blocks}};
      for (const uint64_t word : weights) sink += word;
      AttendLayerArgs args;
      args.qkv = q.data<float>();
      args.qkv_stride = stride;
      args.out = out.data<float>();
      args.num_heads = heads;
      args.scale = 0.125f;
      backend->begin_step(cache.layout, slices, no_encodings);
      const auto begin = std::chrono::steady_clock::now();
      for (args.layer = 0; args.layer < layers; ++args.layer) {
        backend->attend(args);
      }
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      results[i].second = cache.bytes;
      if (round >= 0) results[i].first.push_back(elapsed.count());
    }
  }
  if (sink == 1) throw Error("kernels: the weights were not read");
  return results;
}

}  // namespace

void bind_attend(py::module_& k) {
  k.def("attend_layer", &attend_layer, py::arg("q"), py::arg("slices"), py::arg("kv_heads"),
        py::arg("dtype"), py::arg("key_codec"), py::arg("value_codec"), py::arg("layers"),
        py::arg("layer"), py::arg("scale"), py::arg("threads") = 1, py::arg("window") = 0,
        py::arg("sink_tokens") = 0, py::arg("window_blocks") = 0, py::arg("exact_first") = true,
        py::arg("sink_cosines") = py::none(), py::arg("sink_sines") = py::none(),
        py::arg("device") = "cpu",
        "Attention of one layer on a device, \"cpu\" being the instruction set in use. q (rows, "
        "heads, head_dim), the rows "
        "of the slices one after another; a slice: (first position, tokens, exact blocks, coded "
        "blocks), a block being the bytes that cache_layout.h describes, or None.");
  k.def("attend_rate", &attend_rate, py::arg("caches"), py::arg("layers"), py::arg("heads"),
        py::arg("kv_heads"), py::arg("head_dim"), py::arg("depth"), py::arg("rows"),
        py::arg("threads"), py::arg("window_blocks"), py::arg("rounds"),
        "Seconds of attention alone, all layers, over caches (dtype, key codec, value codec) in "
        "turns: for each the seconds of every round, and the bytes of its blocks. rows: the last "
        "ones of `depth` positions.");
}
