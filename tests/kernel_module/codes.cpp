// Rotation and coding of keys and values: by the kernels for one block, and by a backend for whole
// sequences of blocks.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "arrays.h"
#include "base/error.h"
#include "cpu/tasks/encode.h"
#include "device/device.h"
#include "device_arrays.h"
#include "module.h"

namespace py = pybind11;

namespace {

using namespace onward::cpu;
using onward::BlockEncoding;
using onward::CacheLayout;
using onward::InvalidArgument;

void expect_rotatable(int64_t n) {
  if (n % 32 == 0 && n >= 32 && n <= 512) return;
  throw InvalidArgument("kernels: a vector of " + std::to_string(n) +
                        " coordinates, expected a multiple of 32 up to 512");
}

Floats copy_of(const Floats& x) {
  Floats y(std::vector<py::ssize_t>(x.shape(), x.shape() + x.ndim()));
  std::copy_n(x.data(), x.size(), y.mutable_data());
  return y;
}

Floats hadamard(const std::string& isa, const Floats& x, bool inverse) {
  const Kernels& kernels = kernels_of(isa);
  expect_shape("x", x, {x.size()});
  expect_rotatable(x.size());
  Floats y = copy_of(x);
  (inverse ? kernels.inverse_hadamard : kernels.hadamard)(y.mutable_data(), y.size());
  return y;
}

Floats hadamard_lanes(const std::string& isa, const Floats& x) {
  const Kernels& kernels = kernels_of(isa);
  expect_shape("x", x, {x.size() / kLane, kLane});
  expect_rotatable(x.shape(0));
  Floats y = copy_of(x);
  kernels.hadamard_lanes(y.mutable_data(), y.shape(0));
  return y;
}

// A block of one layer and two heads, of which the second is coded. The bytes of the first show
// whether something else is written.
constexpr int64_t kHeads = 2, kOwnHead = 1;

// keys, values: (16, head_dim) of one head; values may be null.
void fill_head(const CacheLayout& layout, int64_t layer, int64_t head, const void* keys,
               const void* values, char* block) {
  const int64_t bytes = layout.value_bytes(), head_dim = layout.group(layer).head_dim;
  const int64_t stride = layout.value_stride(layout.group(layer));
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    const char* key = static_cast<const char*>(keys) + t * head_dim * bytes;
    char* to = block + layout.keys_offset(layer, head) + t * bytes;
    for (int64_t d = 0; d < head_dim; ++d) {
      std::memcpy(to + d * kBlockTokens * bytes, key + d * bytes, static_cast<size_t>(bytes));
    }
    if (values == nullptr) continue;
    const char* value = static_cast<const char*>(values) + t * head_dim * bytes;
    to = block + layout.values_offset(layer, head) + t * stride * bytes;
    std::memcpy(to, value, static_cast<size_t>(head_dim * bytes));
  }
}

// An exact block that holds NaN for the other head.
std::vector<char> exact_block(const CacheLayout& layout, const py::array& keys,
                              const py::array* values) {
  std::vector<char> block(static_cast<size_t>(layout.exact_block_bytes(0)), '\xff');
  fill_head(layout, 0, kOwnHead, keys.data(), values == nullptr ? nullptr : values->data(),
            block.data());
  return block;
}

Bytes copied(const char* begin, int64_t bytes) {
  Bytes array(bytes);
  std::memcpy(array.mutable_data(), begin, static_cast<size_t>(bytes));
  return array;
}

void expect_block(const char* name, const py::array& array, const py::array& keys) {
  expect_shape(name, array, {kBlockTokens, keys.shape(1)});
  expect_alike(name, array, keys);
}

void expect_sides(const py::array& keys, const py::array& values) {
  expect_dimensions("keys", keys, 2);
  expect_block("keys", keys, keys);
  expect_block("values", values, keys);
}

py::tuple encode_block(const std::string& isa, const py::array& keys, const py::array& values,
                       const std::string& key_codec, const std::string& value_codec,
                       const py::object& first_keys, int64_t first_centred_pair) {
  const Kernels& kernels = kernels_of(isa);
  expect_sides(keys, values);
  CacheLayout layout =
      cache_layout(1, kHeads, keys.shape(1), stored_dtype(keys), key_codec, value_codec);
  layout.first_centred_pair = first_centred_pair;
  const std::vector<char> exact = exact_block(layout, keys, &values);
  std::vector<char> first;
  if (!first_keys.is_none()) {
    const py::array given = py::array::ensure(first_keys);
    expect_block("first_keys", given, keys);
    first = exact_block(layout, given, nullptr);
  }
  // The bytes around the codes show whether something else is written.
  const auto untouched = [](char byte) { return byte == 'u'; };
  std::vector<char> coded(static_cast<size_t>(layout.coded_block_bytes(0)), 'u');
  encode_head(kernels, layout, 0, kOwnHead,
              {0, exact.data(), coded.data(), first.empty() ? nullptr : first.data()});
  const CacheLayout::Group& group = layout.groups[0];
  const int64_t parts[4][2] = {
      {layout.key_codes_offset(0, kOwnHead), layout.key_codes_bytes(group)},
      {layout.key_scales_offset(0, kOwnHead), layout.key_scales_bytes(group)},
      {layout.value_codes_offset(0, kOwnHead), layout.value_codes_bytes(group)},
      {layout.value_scales_offset(0, kOwnHead), layout.value_scales_bytes(group)}};
  py::tuple found(4);
  for (size_t i = 0; i < 4; ++i) {
    char* begin = coded.data() + parts[i][0];
    found[i] = copied(begin, parts[i][1]);
    std::fill(begin, begin + parts[i][1], 'u');
  }
  if (!std::all_of(coded.begin(), coded.end(), untouched)) {
    throw onward::Error("kernels: encode_block wrote beyond its place");
  }
  return found;
}

// Whole blocks, coded by a backend. keys, values: (blocks, layers, heads, 16, head_dim). group_of
// has the layer group of each layer. first_keys: (layers, heads, 16, head_dim) of block 0, or None.
// Returns (blocks, bytes) for each group, with 'u' wherever nothing was written.
std::vector<Bytes> encode_blocks(const py::array& keys, const py::array& values,
                                 const std::string& key_codec, const std::string& value_codec,
                                 const std::vector<int64_t>& group_of, const py::object& first_keys,
                                 int threads, int64_t first_centred_pair,
                                 const std::string& device) {
  if (keys.ndim() != 5 || keys.shape(0) < 1) {
    throw InvalidArgument("kernels: keys have " + std::to_string(keys.ndim()) +
                          " dimensions, expected 5 and at least 1 block");
  }
  const std::vector<int64_t> shape(keys.shape(), keys.shape() + 5);
  const std::vector<int64_t> first_shape = {shape[1], shape[2], kBlockTokens, shape[4]};
  expect_shape("keys", keys,
               {shape[0], static_cast<int64_t>(group_of.size()), shape[2], kBlockTokens, shape[4]});
  expect_shape("values", values, shape);
  expect_alike("keys", keys, keys);
  expect_alike("values", values, keys);
  py::array first;
  if (!first_keys.is_none()) {
    first = py::array::ensure(first_keys);
    expect_shape("first_keys", first, first_shape);
    expect_alike("first_keys", first, keys);
  }
  const int64_t count = shape[0], layers = shape[1], heads = shape[2];
  CacheLayout layout =
      cache_layout(layers, heads, shape[4], stored_dtype(keys), key_codec, value_codec);
  layout.first_centred_pair = first_centred_pair;
  CacheLayout::Group empty = layout.groups[0];
  empty.layers = 0;
  layout.groups.assign(1 + static_cast<size_t>(*std::max_element(group_of.begin(), group_of.end())),
                       empty);
  layout.group_of = group_of;
  layout.place_of.clear();
  for (const int64_t group : group_of) {
    layout.place_of.push_back(layout.groups[static_cast<size_t>(group)].layers++);
  }

  const auto backend = onward::Device(device).make_backend(threads);
  DeviceArrays arrays(*backend);
  const int64_t head_bytes = kBlockTokens * shape[4] * layout.value_bytes();
  // The layers of a group in one block. Number `count` is block 0 of the sequence.
  const auto exact_block = [&](int64_t group, int64_t b) {
    std::vector<char> block(static_cast<size_t>(layout.exact_block_bytes(group)));
    for (int64_t layer = 0; layer < layers; ++layer) {
      if (group_of[static_cast<size_t>(layer)] != group) continue;
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t own = layer * heads + head, at = (b * layers * heads + own) * head_bytes;
        const bool is_first = b == count;
        fill_head(layout, layer, head,
                  static_cast<const char*>(is_first ? first.data() : keys.data()) +
                      (is_first ? own * head_bytes : at),
                  is_first ? nullptr : static_cast<const char*>(values.data()) + at, block.data());
      }
    }
    return arrays.copy_of(static_cast<const void*>(block.data()), layout.exact_block_bytes(group));
  };
  std::vector<Bytes> coded;
  std::vector<BlockEncoding> blocks;
  for (int64_t group = 0; group < layout.num_groups(); ++group) {
    coded.emplace_back(std::vector<py::ssize_t>{count, layout.coded_block_bytes(group)});
    Bytes& own = coded.back();
    std::fill_n(own.mutable_data(), own.size(), static_cast<uint8_t>('u'));
    char* begin = static_cast<char*>(arrays.copy_of(own.data(), own.size()));
    const void* first_block = first_keys.is_none() ? nullptr : exact_block(group, count);
    for (int64_t b = 0; b < count; ++b) {
      blocks.push_back(
          {group, exact_block(group, b), begin + b * layout.coded_block_bytes(group), first_block});
    }
  }
  const std::vector<onward::SequenceSlice> no_slices;
  backend->begin_step(layout, no_slices, blocks);
  for (int64_t layer = 0; layer < layers; ++layer) backend->encode(layer);
  for (int64_t group = 0; group < layout.num_groups(); ++group) {
    Bytes& own = coded[static_cast<size_t>(group)];
    backend->download(own.mutable_data(), blocks[static_cast<size_t>(group * count)].coded,
                      static_cast<size_t>(own.size()));
  }
  return coded;
}

}  // namespace

void bind_codes(py::module_& m) {
  m.def("hadamard", &hadamard, py::arg("isa"), py::arg("x"), py::arg("inverse") = false,
        "The rotation of one vector, or its inverse.");
  m.def("hadamard_lanes", &hadamard_lanes, py::arg("isa"), py::arg("x"),
        "The rotation of sixteen vectors: the columns of x (n, 16).");
  m.def("encode_block", &encode_block, py::arg("isa"), py::arg("keys"), py::arg("values"),
        py::arg("key_codec"), py::arg("value_codec"), py::arg("first_keys") = py::none(),
        py::arg("first_centred_pair") = 0,
        "Bytes of key codes, key scales, value codes and value scales of 16 tokens of one head.");
  m.def("encode_blocks", &encode_blocks, py::arg("keys"), py::arg("values"), py::arg("key_codec"),
        py::arg("value_codec"), py::arg("group_of"), py::arg("first_keys"), py::arg("threads"),
        py::arg("first_centred_pair") = 0, py::arg("device") = "cpu",
        "Blocks that a device codes from keys and values (blocks, layers, heads, 16, head_dim). "
        "Returns (blocks, bytes) for each layer group.");
}
