// Kernels that take one row, or the rows of one key-value head: attention of exact blocks, RMSNorm,
// the gate's activation, rounding. Blocks are filled here element by element, in the plainest way,
// so this file says what the layouts of cpu/kernels.h mean.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "base/buffer.h"
#include "base/error.h"
#include "module.h"

namespace py = pybind11;

namespace {

using namespace onward::cpu;
using onward::DType;
using onward::InvalidArgument;
using onward::round_up;

void expect_lanes(const char* name, const py::array& array) {
  expect_dimensions(name, array, 1);
  if (array.size() % kLane == 0) return;
  throw InvalidArgument(std::string("kernels: ") + name + " has " + std::to_string(array.size()) +
                        " elements, expected a multiple of 16");
}

// Blocks as cpu/kernels.h describes them: NaN wherever no position was written, and none at all
// below `first_block`.
struct Blocks {
  std::vector<std::vector<char>> bytes;
  std::vector<const void*> pointers;
  int64_t k_offset;
  int64_t v_offset;
};

// keys: (positions, head_dim), values: (positions, value_dim)
template <class Element>
Blocks make_blocks(const py::array& keys, const py::array& values, int64_t first_block) {
  const int64_t positions = keys.shape(0), head_dim = keys.shape(1);
  const int64_t value_dim = values.shape(1);
  const int64_t v_stride = round_up(value_dim, kLane), element_bytes = sizeof(Element);
  Blocks blocks;
  blocks.k_offset = 64;  // the bytes before belong to other layers and heads
  blocks.v_offset = blocks.k_offset + head_dim * kBlockTokens * element_bytes;
  const int64_t block_bytes = blocks.v_offset + kBlockTokens * v_stride * element_bytes;
  const Element* k = static_cast<const Element*>(keys.data());
  const Element* v = static_cast<const Element*>(values.data());
  for (int64_t block = 0; block * kBlockTokens < positions; ++block) {
    blocks.bytes.emplace_back();
    blocks.pointers.push_back(nullptr);
    if (block < first_block) continue;
    blocks.bytes.back().assign(static_cast<size_t>(block_bytes), '\xff');
    char* bytes = blocks.bytes.back().data();
    blocks.pointers.back() = bytes;
    Element* block_keys = reinterpret_cast<Element*>(bytes + blocks.k_offset);
    Element* block_values = reinterpret_cast<Element*>(bytes + blocks.v_offset);
    const int64_t begin = block * kBlockTokens;
    for (int64_t t = 0; t < kBlockTokens && begin + t < positions; ++t) {
      for (int64_t d = 0; d < head_dim; ++d) {
        block_keys[d * kBlockTokens + t] = k[(begin + t) * head_dim + d];
      }
      Element* row = std::copy_n(v + (begin + t) * value_dim, value_dim, block_values + t * v_stride);
      std::fill(row, block_values + (t + 1) * v_stride,
                Element(0));
    }
  }
  return blocks;
}

Floats attend(const std::string& isa, const Floats& q, const py::array& keys,
              const py::array& values, int64_t first_position, int64_t window, float scale) {
  const Kernels& kernels = kernels_of(isa);
  const DType dtype = stored_dtype(keys);
  expect_dimensions("q", q, 3);
  expect_dimensions("keys", keys, 2);
  expect_dimensions("values", values, 2);
  expect_alike("keys", keys, keys);
  expect_alike("values", values, keys);
  const int64_t tokens = q.shape(0), group = q.shape(1), head_dim = q.shape(2);
  const int64_t positions = keys.shape(0), value_dim = values.shape(1);
  expect_shape("keys", keys, {positions, head_dim});
  expect_shape("values", values, {positions, value_dim});
  if (first_position < 0 || first_position + tokens > positions) {
    throw InvalidArgument(
        "kernels: first_position is " + std::to_string(first_position) +
        ", expected 0 to positions - tokens = " + std::to_string(positions - tokens));
  }
  if (window < 0 || head_dim < 2 || head_dim > 576 || value_dim > 512) {
    throw InvalidArgument("kernels: window is " + std::to_string(window) + ", head_dim " +
                          std::to_string(head_dim) + " and value_dim " + std::to_string(value_dim) +
                          ", expected 0 or more, 2 to 576, and 1 to 512");
  }
  const int64_t first_key = window > 0 ? std::max<int64_t>(0, first_position - window + 1) : 0;
  const int64_t first_block = first_key / kBlockTokens;
  const Blocks blocks = dtype == DType::f32 ? make_blocks<float>(keys, values, first_block)
                                            : make_blocks<uint16_t>(keys, values, first_block);
  // Padding after each row shows whether a kernel writes more than value_dim elements per head.
  const int64_t row = group * value_dim, out_stride = row + kLane;
  std::vector<float> padded(static_cast<size_t>(tokens * out_stride), -1.0f);
  AttendArgs args = {};
  args.q = q.data();
  args.q_stride = group * head_dim;
  args.out = padded.data();
  args.out_stride = out_stride;
  args.blocks = blocks.pointers.data();
  args.k_offset = blocks.k_offset;
  args.v_offset = blocks.v_offset;
  args.v_stride = args.state_width = round_up(value_dim, kLane);
  args.head_dim = head_dim;
  args.value_dim = value_dim;
  args.group = group;
  args.tokens = tokens;
  args.first_position = first_position;
  args.window = window;
  args.scale = scale;
  (dtype == DType::f32   ? kernels.attend_f32
   : dtype == DType::f16 ? kernels.attend_f16
                         : kernels.attend_bf16)(args);
  Floats out({tokens, group, value_dim});
  for (int64_t t = 0; t < tokens; ++t) {
    const float* begin = padded.data() + t * out_stride;
    std::copy(begin, begin + row, out.mutable_data() + t * row);
    if (std::any_of(begin + row, begin + out_stride, [](float x) { return x != -1.0f; })) {
      throw onward::Error("kernels: attend wrote beyond the end of a row");
    }
  }
  return out;
}

Floats rms_norm(const std::string& isa, const Floats& x, const Floats& weight, float eps) {
  const Kernels& kernels = kernels_of(isa);
  expect_dimensions("x", x, 1);
  expect_shape("weight", weight, {x.size()});
  Floats y(x.size());
  kernels.rms_norm(x.data(), weight.data(), eps, x.size(), y.mutable_data());
  return y;
}

Floats layer_norm(const std::string& isa, const Floats& x, const Floats& weight,
                  const std::optional<Floats>& bias, float eps) {
  const Kernels& kernels = kernels_of(isa);
  expect_dimensions("x", x, 1);
  expect_shape("weight", weight, {x.size()});
  if (bias) expect_shape("bias", *bias, {x.size()});
  Floats y(x.size());
  kernels.layer_norm(x.data(), weight.data(), bias ? bias->data() : nullptr, eps, x.size(),
                     y.mutable_data());
  return y;
}

Floats activate(const std::string& isa, const std::string& activation, const Floats& x,
                const std::optional<Floats>& up, float limit, float up_shift,
                const std::optional<Floats>& parameters) {
  const Kernels& kernels = kernels_of(isa);
  expect_lanes("x", x);
  if (up) expect_shape("up", *up, {x.size()});
  const auto* name =
      std::find_if(onward::kActivationNames, onward::kActivationNames + onward::kActivations,
                   [&](const char* each) { return activation == each; });
  if (name == onward::kActivationNames + onward::kActivations) {
    throw InvalidArgument("kernels: no activation " + activation);
  }
  Floats y(x.size());
  ActivateArgs args;
  args.gate = {static_cast<onward::Activation>(name - onward::kActivationNames), up.has_value(),
               limit, up_shift};
  args.parameters = parameters ? parameters->data() : nullptr;
  args.x = x.data();
  args.up = up ? up->data() : nullptr;
  args.n = x.size();
  args.y = y.mutable_data();
  kernels.activate(args);
  return y;
}

Floats soft_cap(const std::string& isa, const Floats& x, float scale, float cap) {
  const Kernels& kernels = kernels_of(isa);
  expect_lanes("x", x);
  Floats y(x.size());
  std::copy_n(x.data(), x.size(), y.mutable_data());
  kernels.soft_cap(y.mutable_data(), y.size(), scale, cap);
  return y;
}

Floats add_scaled(const std::string& isa, const Floats& x, float scale, const Floats& y) {
  const Kernels& kernels = kernels_of(isa);
  expect_lanes("x", x);
  expect_shape("y", y, {x.size()});
  Floats sum(x.size());
  std::copy_n(y.data(), y.size(), sum.mutable_data());
  kernels.add_scaled(x.data(), scale, x.size(), sum.mutable_data());
  return sum;
}

Halves round_bf16(const std::string& isa, const Floats& x) {
  const Kernels& kernels = kernels_of(isa);
  expect_lanes("x", x);
  Halves y(x.size());
  kernels.round_bf16(x.data(), x.size(), y.mutable_data());
  return y;
}

}  // namespace

void bind_rows(py::module_& m) {
  m.def("attend", &attend, py::arg("isa"), py::arg("q"), py::arg("keys"), py::arg("values"),
        py::arg("first_position"), py::arg("window"), py::arg("scale"),
        "q (tokens, group, head_dim); keys (positions, head_dim) and values (positions, "
        "value_dim): float32, float16, or bf16 as uint16. Cache slots without a position hold NaN.");
  m.def("rms_norm", &rms_norm, py::arg("isa"), py::arg("x"), py::arg("weight"), py::arg("eps"));
  m.def("layer_norm", &layer_norm, py::arg("isa"), py::arg("x"), py::arg("weight"), py::arg("bias"),
        py::arg("eps"));
  m.def("activate", &activate, py::arg("isa"), py::arg("activation"), py::arg("x"),
        py::arg("up") = std::nullopt, py::arg("limit") = 0.0f, py::arg("up_shift") = 0.0f,
        py::arg("parameters") = std::nullopt, "Without `up`, not gated.");
  m.def("soft_cap", &soft_cap, py::arg("isa"), py::arg("x"), py::arg("scale"), py::arg("cap"));
  m.def("add_scaled", &add_scaled, py::arg("isa"), py::arg("x"), py::arg("scale"), py::arg("y"));
  m.def("round_bf16", &round_bf16, py::arg("isa"), py::arg("x"));
}
