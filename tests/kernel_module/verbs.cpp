// The verbs of a backend on numpy arrays, on any device, so that tests can compare devices. Weights
// are packed and rows are padded as a model does it.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "base/error.h"
#include "device/device.h"
#include "device_arrays.h"
#include "module.h"

namespace py = pybind11;

namespace {

using onward::activation_stride;
using onward::Backend;
using onward::DType;
using onward::InvalidArgument;
using onward::Matrix;
using onward::TensorSource;
using onward::Vector;

// A device with a backend, a store of weights, and arrays on it.
class Bench {
 public:
  explicit Bench(const std::string& name)
      : device_(name),
        backend_(device_.make_backend(kThreads)),
        store_(device_.make_weight_store(kThreads)),
        arrays_(*backend_) {}

  Backend& backend() { return *backend_; }
  DeviceArrays& arrays() { return arrays_; }

  // weights: (rows, bytes of a row), cut into `parts` equal parts.
  Matrix pack(const Bytes& weights, const std::string& stored, const std::string& dtype,
              int64_t parts) {
    const DType from = onward::parse_dtype(stored), to = onward::parse_dtype(dtype);
    if (weights.ndim() != 2 || weights.shape(0) % parts != 0 || !onward::is_matrix_dtype(to)) {
      throw InvalidArgument("kernels: weights of " + std::to_string(weights.ndim()) +
                            " dimensions become " + dtype + ", expected 2, and a matrix's dtype");
    }
    std::vector<TensorSource> sources(static_cast<size_t>(parts));
    for (int64_t part = 0; part < parts; ++part) {
      TensorSource& source = sources[static_cast<size_t>(part)];
      source.rows = weights.shape(0) / parts;
      source.bytes = static_cast<size_t>(source.rows * weights.shape(1));
      source.data = weights.data() + part * static_cast<int64_t>(source.bytes);
      source.dtype = from;
      source.columns =
          weights.shape(1) / onward::dtype_block_bytes(from) * onward::dtype_block_values(from);
    }
    return store_->pack_matrix(sources, to);
  }

  // values: (parts, n). Each part is padded.
  Vector vector(const std::optional<Floats>& values) {
    if (!values) return {};
    std::vector<TensorSource> sources;
    for (py::ssize_t part = 0; part < values->shape(0); ++part) {
      TensorSource source;
      source.data = values->data() + part * values->shape(1);
      source.bytes = static_cast<size_t>(values->shape(1)) * sizeof(float);
      source.rows = 1;
      source.columns = values->shape(1);
      sources.push_back(source);
    }
    return store_->pack_vector(sources);
  }

  // The first `columns` of each of the rows of `width`.
  Floats fetch(const float* memory, int64_t rows, int64_t width, int64_t columns) {
    std::vector<float> padded(static_cast<size_t>(rows * width));
    backend_->download(padded.data(), memory, padded.size() * sizeof(float));
    return cut_rows(padded.data(), rows, width, columns);
  }

 private:
  static constexpr int kThreads = 2;
  onward::Device device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<onward::WeightStore> store_;
  DeviceArrays arrays_;
};

Floats product_on(const std::string& device, const Bytes& weights, const std::string& stored,
                  const std::string& dtype, const Floats& x, const std::optional<Floats>& norm,
                  float eps, const std::optional<Floats>& bias, const std::optional<Floats>& add,
                  bool gated) {
  Bench bench(device);
  const int64_t parts = gated ? 2 : 1;
  const Matrix matrix = bench.pack(weights, stored, dtype, parts);
  const int64_t rows = x.ndim() == 2 ? x.shape(0) : 0, columns = rows > 0 ? x.shape(1) : 0;
  const int64_t outputs = weights.shape(0) / parts;
  if (activation_stride(columns) != matrix.inputs || rows == 0 || (gated && add)) {
    throw InvalidArgument(
        "kernels: x has no rows or another width than the weights, or `gated` comes with `add`");
  }
  if (norm) expect_shape("norm", *norm, {1, columns});
  if (bias) expect_shape("bias", *bias, {parts, outputs});
  if (add) expect_shape("add", *add, {rows, outputs});
  onward::LinearInput input;
  input.x = bench.arrays().copy_of(padded_rows(x, matrix.inputs));
  input.norm = {bench.vector(norm), eps, columns, false, Vector{}};
  const Vector biases = bench.vector(bias);
  const int64_t width = matrix.outputs / parts;
  float* y =
      add ? bench.arrays().copy_of(padded_rows(*add, width)) : bench.arrays().floats(rows * width);
  if (gated) {
    bench.backend().activated_linear(matrix, biases, input, rows, {}, nullptr, y);
  } else {
    bench.backend().linear(matrix, biases, input, rows, add.has_value(), y);
  }
  return bench.fetch(y, rows, width, outputs);
}

Floats embed_on(const std::string& device, const Bytes& table, const std::string& stored,
                const std::string& dtype, const IdArray& ids) {
  Bench bench(device);
  const Matrix matrix = bench.pack(table, stored, dtype, 1);
  const int64_t rows = ids.size();
  for (int64_t row = 0; row < rows; ++row) {
    if (ids.data()[row] < 0 || ids.data()[row] >= table.shape(0)) {
      throw InvalidArgument("kernels: an id is outside the table");
    }
  }
  const auto* on_device = static_cast<const int32_t*>(
      bench.arrays().copy_of(static_cast<const void*>(ids.data()), rows * 4));
  float* x = bench.arrays().floats(rows * matrix.inputs);
  bench.backend().embed(matrix, on_device, rows, 1.0f, false, x);
  return bench.fetch(x, rows, matrix.inputs, matrix.inputs);
}

}  // namespace

void bind_verbs(py::module_& m) {
  m.def("product_on", &product_on, py::arg("device"), py::arg("weights"), py::arg("stored"),
        py::arg("dtype"), py::arg("x"), py::arg("norm") = py::none(), py::arg("eps") = 0.0f,
        py::arg("bias") = py::none(), py::arg("add") = py::none(), py::arg("gated") = false);
  m.def("embed_on", &embed_on, py::arg("device"), py::arg("table"), py::arg("stored"),
        py::arg("dtype"), py::arg("ids"));
}
