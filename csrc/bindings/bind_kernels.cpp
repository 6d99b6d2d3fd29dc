// The submodule `kernels`: every instruction set's inner loops on plain numpy arrays, and probes of
// what the machine can do. For tests and benchmarks; knows nothing of models. Packing here is the
// plainest there is, element by element: it says what the layouts of cpu/kernels.h mean.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/error.h"
#include "bindings/bindings.h"
#include "cpu/kernels.h"

namespace py = pybind11;

namespace {

using namespace onward::cpu;
using onward::DType;
using onward::InvalidArgument;
using onward::round_up;

using Floats = py::array_t<float, py::array::c_style>;
using Bits = py::array_t<uint16_t, py::array::c_style>;

std::vector<std::string> available() {
  std::vector<std::string> names;
  const std::string joined = available_kernels();
  for (size_t begin = 0; begin < joined.size();) {
    const size_t end = std::min(joined.find(',', begin), joined.size());
    names.push_back(joined.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

std::string shape_text(const py::array& array) {
  std::string text = "(";
  for (py::ssize_t i = 0; i < array.ndim(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(array.shape(i));
  }
  return text + ")";
}

void expect_dimensions(const char* name, const py::array& array, py::ssize_t dimensions) {
  if (array.ndim() == dimensions && array.size() > 0) return;
  throw InvalidArgument(std::string("kernels: ") + name + " has shape " + shape_text(array) +
                        ", expected " + std::to_string(dimensions) + " dimensions, none of them 0");
}

void expect_lanes(const char* name, const py::array& array) {
  expect_dimensions(name, array, 1);
  if (array.size() % kLane == 0) return;
  throw InvalidArgument(std::string("kernels: ") + name + " has " + std::to_string(array.size()) +
                        " elements, expected a multiple of 16");
}

// What keys and values are stored as, the same for both: f32, f16, or bf16 as uint16.
DType stored_dtype(const py::array& keys, const py::array& values) {
  for (const py::array* array : {&keys, &values}) {
    if ((array->flags() & py::array::c_style) == 0 || !array->dtype().equal(keys.dtype())) {
      throw InvalidArgument("kernels: keys and values are strided or of two dtypes, expected one");
    }
  }
  const char kind = keys.dtype().kind();
  const py::ssize_t bytes = keys.itemsize();
  if (kind == 'f' && bytes == 4) return DType::f32;
  if (kind == 'f' && bytes == 2) return DType::f16;
  if (kind == 'u' && bytes == 2) return DType::bf16;
  throw InvalidArgument("kernels: keys have dtype " + std::string(py::str(keys.dtype())) +
                        ", expected float32, float16, or uint16 for bf16");
}

// keys, values: (positions, head_dim). Blocks as cpu/kernels.h has them: NaN wherever no position
// was written, and none at all below `first_block`.
struct Blocks {
  std::vector<std::vector<char>> bytes;
  std::vector<const void*> pointers;
  int64_t k_offset;
  int64_t v_offset;
};

template <class Element>
Blocks make_blocks(const py::array& keys, const py::array& values, int64_t first_block) {
  const int64_t positions = keys.shape(0), head_dim = keys.shape(1);
  const int64_t v_stride = round_up(head_dim, kLane), element_bytes = sizeof(Element);
  Blocks blocks;
  blocks.k_offset = 64;  // what lies before belongs to other layers and heads
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
        block_values[t * v_stride + d] = v[(begin + t) * head_dim + d];
      }
      std::fill(block_values + t * v_stride + head_dim, block_values + (t + 1) * v_stride,
                Element(0));
    }
  }
  return blocks;
}

Floats attend(const std::string& isa, const Floats& q, const py::array& keys,
              const py::array& values, int64_t first_position, int64_t window, float scale) {
  const Kernels& kernels = kernels_of(isa);
  const DType dtype = stored_dtype(keys, values);
  expect_dimensions("q", q, 3);
  expect_dimensions("keys", keys, 2);
  const int64_t tokens = q.shape(0), group = q.shape(1), head_dim = q.shape(2);
  const int64_t positions = keys.shape(0);
  expect_shape("keys", keys, {positions, head_dim});
  expect_shape("values", values, {positions, head_dim});
  if (first_position < 0 || first_position + tokens > positions) {
    throw InvalidArgument(
        "kernels: first_position is " + std::to_string(first_position) +
        ", expected 0 to positions - tokens = " + std::to_string(positions - tokens));
  }
  if (window < 0 || head_dim < 2 || head_dim > 512) {
    throw InvalidArgument("kernels: window is " + std::to_string(window) + " and head_dim " +
                          std::to_string(head_dim) + ", expected 0 or more, and 2 to 512");
  }
  const int64_t first_key = window > 0 ? std::max<int64_t>(0, first_position - window + 1) : 0;
  const int64_t first_block = first_key / kBlockTokens;
  const Blocks blocks = dtype == DType::f32 ? make_blocks<float>(keys, values, first_block)
                                            : make_blocks<uint16_t>(keys, values, first_block);
  // Room behind each row, to see that a kernel writes head_dim elements a head and no more.
  const int64_t row = group * head_dim, out_stride = row + kLane;
  std::vector<float> padded(static_cast<size_t>(tokens * out_stride), -1.0f);
  (dtype == DType::f32   ? kernels.attend_f32
   : dtype == DType::f16 ? kernels.attend_f16
                         : kernels.attend_bf16)(
      {q.data(), row, padded.data(), out_stride, blocks.pointers.data(), blocks.k_offset,
       blocks.v_offset, round_up(head_dim, kLane), round_up(head_dim, kLane), head_dim, group,
       tokens, first_position, window, scale});
  Floats out({tokens, group, head_dim});
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

Floats silu_mul(const std::string& isa, const Floats& gate, const Floats& up) {
  const Kernels& kernels = kernels_of(isa);
  expect_lanes("gate", gate);
  expect_shape("up", up, {gate.size()});
  Floats y(gate.size());
  kernels.silu_mul(gate.data(), up.data(), gate.size(), y.mutable_data());
  return y;
}

Bits round_bf16(const std::string& isa, const Floats& x) {
  const Kernels& kernels = kernels_of(isa);
  expect_lanes("x", x);
  Bits y(x.size());
  kernels.round_bf16(x.data(), x.size(), y.mutable_data());
  return y;
}

using Clock = std::chrono::steady_clock;

// Runs work(thread) -> units over and over on every thread for so many seconds; units a second.
double rate(int threads, double seconds, const std::function<int64_t(int)>& work) {
  std::vector<int64_t> units(static_cast<size_t>(threads));
  const Clock::time_point begin = Clock::now();
  const auto run = [&](int thread) {
    do {
      units[static_cast<size_t>(thread)] += work(thread);
    } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& thread : others) thread.join();
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  int64_t total = 0;
  for (const int64_t count : units) total += count;
  return static_cast<double>(total) / elapsed;
}

double probe(const std::string& isa, const std::string& kind, double seconds, int threads) {
  const Kernels& kernels = kernels_of(isa);
  if (threads < 1 || threads > 1024 || !(seconds > 0.0 && seconds <= 60.0)) {
    throw InvalidArgument("kernels: probe with " + std::to_string(threads) + " threads for " +
                          std::to_string(seconds) +
                          " seconds, expected 1 to 1024 threads and at most 60 seconds");
  }
  const py::gil_scoped_release release;
  std::vector<uint64_t> sinks(static_cast<size_t>(threads));
  if (kind == "read") {
    // More than any last-level cache share; each thread reads its own part.
    constexpr int64_t kBytes = int64_t{256} << 20;
    const std::vector<uint64_t> data(kBytes / sizeof(uint64_t), 1);
    const int64_t part = kBytes / threads / 256 * 256;
    return 1e-9 * rate(threads, seconds, [&](int thread) {
             const char* bytes = reinterpret_cast<const char*>(data.data()) + thread * part;
             sinks[static_cast<size_t>(thread)] += kernels.probe_read(bytes, part);
             return part;
           });
  }
  const auto arithmetic = kind == "f32"    ? kernels.probe_f32
                          : kind == "bf16" ? kernels.probe_bf16
                          : kind == "int8" ? kernels.probe_int8
                                           : nullptr;
  if (arithmetic == nullptr) {
    throw InvalidArgument("kernels: unknown probe, found '" + kind +
                          "', expected one of read, f32, bf16, int8");
  }
  return 1e-9 * rate(threads, seconds, [&](int thread) {
           float sink = 0.0f;
           const int64_t operations = arithmetic(100000, &sink);
           sinks[static_cast<size_t>(thread)] += static_cast<uint64_t>(static_cast<int64_t>(sink));
           return operations;
         });
}

}  // namespace

void expect_shape(const char* name, const py::array& array, const std::vector<int64_t>& shape) {
  std::string expected = "(";
  bool same = array.ndim() == static_cast<py::ssize_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    same = same && array.shape(static_cast<py::ssize_t>(i)) == shape[i];
    if (i > 0) expected += ", ";
    expected += std::to_string(shape[i]);
  }
  if (same) return;
  throw InvalidArgument(std::string("kernels: ") + name + " has shape " + shape_text(array) +
                        ", expected " + expected + ")");
}

const Kernels& kernels_of(const std::string& isa) {
  const std::vector<std::string> names = available();
  if (std::find(names.begin(), names.end(), isa) != names.end()) {
    for (const Kernels* kernels :
         {generic_kernels(), avx2_kernels(), avx2vnni_kernels(), avx512_kernels(),
          avx512vnni_kernels(), avx512bf16_kernels(), neon_kernels(), neondot_kernels()}) {
      if (kernels != nullptr && isa == kernels->name) return *kernels;
    }
  }
  throw InvalidArgument("kernels: cannot run this instruction set, found '" + isa +
                        "', expected one of " + available_kernels());
}

void bind_kernels(py::module_& m) {
  py::module_ k = m.def_submodule("kernels", "Inner loops of every instruction set, and probes.");
  k.def("available", &available, "Instruction sets this machine can run, slowest first.");
  k.def(
      "selected", [] { return std::string(select_kernels().name); },
      "The instruction set in use: the best one, or what ONWARD_CPU_ISA names.");
  k.def("attend", &attend, py::arg("isa"), py::arg("q"), py::arg("keys"), py::arg("values"),
        py::arg("first_position"), py::arg("window"), py::arg("scale"),
        "q (tokens, group, head_dim); keys, values (positions, head_dim): float32, float16, or "
        "bf16 as uint16. Cache slots without a position hold NaN.");
  k.def("rms_norm", &rms_norm, py::arg("isa"), py::arg("x"), py::arg("weight"), py::arg("eps"));
  k.def("silu_mul", &silu_mul, py::arg("isa"), py::arg("gate"), py::arg("up"));
  k.def("round_bf16", &round_bf16, py::arg("isa"), py::arg("x"));
  k.def("probe", &probe, py::arg("isa"), py::arg("kind"), py::arg("seconds"), py::arg("threads"),
        "GB/s for kind 'read', GFLOP/s for 'f32', 'bf16' and 'int8', of so many threads together.");
  bind_linear(k);
  bind_scans(k);
  bind_sampling(k);
  bind_attend(k);
  bind_codes(k);
  bind_verbs(k);
}
