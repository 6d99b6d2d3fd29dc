// Matrix products of the submodule `kernels` on plain numpy arrays, with the packing and the tasks
// that a model has. For tests and benchmarks.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <time.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "bindings/bindings.h"
#include "cpu/linear.h"
#include "cpu/panels.h"
#include "formats/range_check.h"

namespace py = pybind11;

namespace {

using namespace onward::cpu;
using onward::DType;
using onward::InvalidArgument;
using onward::Matrix;
using onward::round_up;
using onward::TensorSource;

using Floats = py::array_t<float, py::array::c_style>;
using Bytes = py::array_t<uint8_t, py::array::c_style>;

struct PackedMatrix {
  onward::AlignedBuffer memory;
  Matrix matrix;
  int64_t rows;
  int64_t columns;
};

// weights: (rows, bytes of a row) as a file stores them.
PackedMatrix pack(const Bytes& weights, const std::string& stored, const std::string& packed) {
  const DType stored_dtype = onward::parse_dtype(stored), dtype = onward::parse_dtype(packed);
  if (weights.ndim() != 2 || !is_matrix_dtype(dtype)) {
    throw InvalidArgument("kernels: weights have " + std::to_string(weights.ndim()) +
                          " dimensions and become " + packed +
                          ", expected 2 and f32, f16, bf16, q8_0, q4_0 or q4_1");
  }
  TensorSource source;
  source.data = weights.data();
  source.bytes = static_cast<size_t>(weights.nbytes());
  source.dtype = stored_dtype;
  source.rows = weights.shape(0);
  source.columns =
      weights.shape(1) / dtype_block_bytes(stored_dtype) * dtype_block_values(stored_dtype);
  // As a weight store packs it, but without its check of the values' range.
  const std::vector<onward::OutputSource> outputs = onward::outputs_of({source});
  PackedMatrix result = {{}, onward::planned_matrix(onward::shapes_of({source}), dtype),
                         source.rows, source.columns};
  Matrix& matrix = result.matrix;
  result.memory = onward::AlignedBuffer(static_cast<size_t>(matrix.bytes()));
  matrix.data = result.memory.data();
  for (int64_t first = 0; first < matrix.outputs; first += kPanelColumns) {
    pack_panel(matrix, first, panel_width(matrix, first), outputs.data() + first);
  }
  return result;
}

std::vector<float> padded_rows(const Floats& rows, int64_t width) {
  std::vector<float> padded(static_cast<size_t>(rows.shape(0) * width));
  for (py::ssize_t row = 0; row < rows.shape(0); ++row) {
    std::copy_n(rows.data() + row * rows.shape(1), rows.shape(1), padded.begin() + row * width);
  }
  return padded;
}

Floats linear(const std::string& isa, const Bytes& weights, const std::string& stored,
              const std::string& dtype, const Floats& x, const std::optional<Floats>& bias,
              const std::optional<Floats>& add, int threads) {
  const Kernels& kernels = kernels_of(isa);
  const PackedMatrix packed = pack(weights, stored, dtype);
  const Matrix& matrix = packed.matrix;
  const int64_t rows = x.ndim() == 2 ? x.shape(0) : 0;
  if (threads < 1) {
    throw InvalidArgument("kernels: threads is " + std::to_string(threads) +
                          ", expected at least 1");
  }
  expect_shape("x", x, {rows, packed.columns});
  if (bias) expect_shape("bias", *bias, {1, packed.rows});
  if (add) expect_shape("add", *add, {rows, packed.rows});
  const std::vector<float> inputs = padded_rows(x, matrix.inputs);
  std::vector<float> y(static_cast<size_t>(rows * matrix.outputs));
  std::vector<float> biases;
  if (add) y = padded_rows(*add, matrix.outputs);
  if (bias) biases = padded_rows(*bias, matrix.outputs);
  InputRows input;
  input.reserve(matrix, {inputs.data(), {}, 0, 0}, rows);
  for (int64_t row = 0; input.needed() && row < rows; ++row) input.prepare(kernels, row);
  const LinearTasks tasks(
      {&matrix, bias ? biases.data() : nullptr, add.has_value(), false, y.data()}, input, rows,
      kernels, threads);
  for (int64_t task = 0; task < tasks.count(); ++task) tasks.run(task);
  Floats result({rows, packed.rows});
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(y.begin() + row * matrix.outputs, packed.rows,
                result.mutable_data() + row * packed.rows);
  }
  return result;
}

// What the packed weights stand for.
Floats repacked(const Bytes& weights, const std::string& stored, const std::string& dtype) {
  const PackedMatrix packed = pack(weights, stored, dtype);
  Floats result({packed.rows, packed.columns});
  std::vector<float> values(static_cast<size_t>(packed.matrix.inputs));
  for (int64_t row = 0; row < packed.rows; ++row) {
    read_output(packed.matrix, row, values.data());
    std::copy_n(values.begin(), packed.columns, result.mutable_data() + row * packed.columns);
  }
  return result;
}

py::tuple quantize(const std::string& isa, const Floats& x) {
  const Kernels& kernels = kernels_of(isa);
  if (x.ndim() != 1 || x.size() == 0 || x.size() % kLane != 0) {
    throw InvalidArgument("kernels: x has " + std::to_string(x.size()) +
                          " elements, expected one dimension and a multiple of 16");
  }
  const int64_t groups = round_up(x.size(), kGroupValues) / kGroupValues;
  py::array_t<int8_t> y(groups * kGroupValues);
  Floats scales(groups);
  py::array_t<int32_t> sums(groups);
  kernels.quantize(x.data(), x.size(), y.mutable_data(), scales.mutable_data(),
                   sums.mutable_data());
  return py::make_tuple(y, scales, sums);
}

double processor_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Rows times four panels, over and over on this thread; operations a second of its own processor
// time, 1e9 of them, two for a multiply-add. The inputs are prepared once, before.
double product_rate(const std::string& isa, const std::string& dtype, int64_t rows, int64_t k,
                    double seconds) {
  if (rows < 1 || rows > 4096 || k < 1 || k > (1 << 20) || !(seconds > 0.0 && seconds <= 60.0)) {
    throw InvalidArgument("kernels: product of " + std::to_string(rows) + " rows of " +
                          std::to_string(k) + " for " + std::to_string(seconds) +
                          " seconds, expected 1 to 4096 rows, at most 1048576 and 60 seconds");
  }
  const Kernels& kernels = kernels_of(isa);
  constexpr int64_t kOutputs = 4 * kPanelColumns;
  Floats weights({kOutputs, k});
  for (int64_t i = 0; i < kOutputs * k; ++i) {
    weights.mutable_data()[i] = static_cast<float>(i * 7919 % 257 - 128) / 4096.0f;
  }
  const PackedMatrix packed = pack(
      Bytes({kOutputs, k * 4}, reinterpret_cast<const uint8_t*>(weights.data())), "f32", dtype);
  const Matrix& matrix = packed.matrix;
  std::vector<float> x(static_cast<size_t>(rows * matrix.inputs), 0.5f);
  std::vector<float> y(static_cast<size_t>(rows * kOutputs));
  const py::gil_scoped_release release;
  InputRows input;
  input.reserve(matrix, {x.data(), {}, 0, 0}, rows);
  for (int64_t row = 0; input.needed() && row < rows; ++row) input.prepare(kernels, row);
  const LinearTasks tasks({&matrix, nullptr, false, false, y.data()}, input, rows, kernels, 1);
  const double begin = processor_seconds();
  int64_t products = 0;
  do {
    for (int64_t task = 0; task < tasks.count(); ++task) tasks.run(task);
    ++products;
  } while (processor_seconds() - begin < seconds);
  return 2e-9 * static_cast<double>(products * rows * k * kOutputs) / (processor_seconds() - begin);
}

}  // namespace

void bind_linear(py::module_& k) {
  k.def("linear", &linear, py::arg("isa"), py::arg("weights"), py::arg("stored"), py::arg("dtype"),
        py::arg("x"), py::arg("bias") = py::none(), py::arg("add") = py::none(),
        py::arg("threads") = 1,
        "add + (x @ weights.T + bias), cut into tasks for so many threads. weights: the bytes of "
        "(n, k) as `stored`, packed as `dtype`; x (rows, k), bias (1, n), add (rows, n).");
  k.def("weight_range", [](const std::string& dtype) {
    const onward::WeightRange range = onward::weight_range(onward::parse_dtype(dtype));
    return std::make_pair(range.low, range.high);
  }, py::arg("dtype"));
  k.def("repacked", &repacked, py::arg("weights"), py::arg("stored"), py::arg("dtype"),
        "What the weights stand for once they are packed.");
  k.def("quantize", &quantize, py::arg("isa"), py::arg("x"),
        "x in groups of 32: int8 values, scales and sums.");
  k.def("product_rate", &product_rate, py::arg("isa"), py::arg("dtype"), py::arg("rows"),
        py::arg("k"), py::arg("seconds"),
        "GFLOP/s of one thread's processor time: rows x k times 256 outputs in `dtype`.");
}
