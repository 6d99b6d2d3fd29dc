// Matrix products of each instruction set, with the packing and the tasks that a model has.
#include "cpu/tasks/linear.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <time.h>

#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "base/error.h"
#include "bindings/packed_matrix.h"
#include "module.h"

namespace py = pybind11;

namespace {

using namespace onward::cpu;
using onward::InvalidArgument;
using onward::Matrix;
using onward::round_up;

Floats linear(const std::string& isa, const Bytes& weights, const std::string& stored,
              const std::string& dtype, const Floats& x, const std::optional<Floats>& bias,
              const std::optional<Floats>& add, int threads) {
  const Kernels& kernels = kernels_of(isa);
  const PackedMatrix packed = pack_matrix(weights, stored, dtype);
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
  input.reserve(matrix, {inputs.data(), onward::Norm{}}, rows);
  for (int64_t row = 0; input.needed() && row < rows; ++row) input.prepare(kernels, row);
  const LinearTasks tasks(
      {&matrix, 0, matrix.outputs, bias ? biases.data() : nullptr, add.has_value(), y.data()},
      input, 0, rows, kernels, threads);
  for (int64_t task = 0; task < tasks.count(); ++task) tasks.run(task);
  return cut_rows(y.data(), rows, matrix.outputs, packed.rows);
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

// Repeats the product of `rows` rows with four panels on this thread. Returns GFLOP per second of
// the thread's processor time; a multiply-add counts as two operations. The inputs are prepared
// once, before the clock starts.
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
  const PackedMatrix packed = pack_matrix(
      Bytes({kOutputs, k * 4}, reinterpret_cast<const uint8_t*>(weights.data())), "f32", dtype);
  const Matrix& matrix = packed.matrix;
  std::vector<float> x(static_cast<size_t>(rows * matrix.inputs), 0.5f);
  std::vector<float> y(static_cast<size_t>(rows * kOutputs));
  const py::gil_scoped_release release;
  InputRows input;
  input.reserve(matrix, {x.data(), onward::Norm{}}, rows);
  for (int64_t row = 0; input.needed() && row < rows; ++row) input.prepare(kernels, row);
  const LinearTasks tasks({&matrix, 0, matrix.outputs, nullptr, false, y.data()}, input, 0, rows,
                          kernels, 1);
  const double begin = processor_seconds();
  int64_t products = 0;
  do {
    for (int64_t task = 0; task < tasks.count(); ++task) tasks.run(task);
    ++products;
  } while (processor_seconds() - begin < seconds);
  return 2e-9 * static_cast<double>(products * rows * k * kOutputs) / (processor_seconds() - begin);
}

}  // namespace

void bind_linear(py::module_& m) {
  m.def("linear", &linear, py::arg("isa"), py::arg("weights"), py::arg("stored"), py::arg("dtype"),
        py::arg("x"), py::arg("bias") = py::none(), py::arg("add") = py::none(),
        py::arg("threads") = 1,
        "add + (x @ weights.T + bias), cut into tasks for that number of threads. weights: the "
        "bytes of "
        "(n, k) as `stored`, packed as `dtype`; x (rows, k), bias (1, n), add (rows, n).");
  m.def("quantize", &quantize, py::arg("isa"), py::arg("x"),
        "x in groups of 32: int8 values, scales and sums.");
  m.def("product_rate", &product_rate, py::arg("isa"), py::arg("dtype"), py::arg("rows"),
        py::arg("k"), py::arg("seconds"),
        "GFLOP/s of one thread's processor time: rows x k times 256 outputs in `dtype`.");
}
