// The verbs of a backend on plain numpy arrays, on any device: for tests that hold one device
// against another. What a model has around a verb, packing and padding, is here as it is there.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "device/device.h"

namespace py = pybind11;

namespace {

using onward::activation_stride;
using onward::Backend;
using onward::DType;
using onward::InvalidArgument;
using onward::Matrix;
using onward::TensorSource;
using onward::Vector;

using Floats = py::array_t<float, py::array::c_style>;
using Bytes = py::array_t<uint8_t, py::array::c_style>;
using Ids = py::array_t<int32_t, py::array::c_style>;

// A backend, and memory on it that is given back at the end.
class Bench {
 public:
  explicit Bench(const std::string& name)
      : device_(name),
        backend_(device_.make_backend(kThreads)),
        store_(device_.make_weight_store(kThreads)) {}
  ~Bench() {
    for (void* memory : taken_) backend_->release(memory);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Backend& backend() { return *backend_; }

  // weights: (rows, bytes of a row), cut into equal parts.
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

  // values: (parts, n), each part padded.
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

  template <typename T>
  T* take(int64_t count) {
    taken_.push_back(backend_->allocate(static_cast<size_t>(count) * sizeof(T)));
    return static_cast<T*>(taken_.back());
  }

  // (rows, n) in rows of `width`.
  float* bring(const Floats& rows, int64_t width) {
    const int64_t count = rows.shape(0) * width;
    std::vector<float> padded(static_cast<size_t>(count));
    for (py::ssize_t row = 0; row < rows.shape(0); ++row) {
      std::copy_n(rows.data() + row * rows.shape(1), rows.shape(1), padded.begin() + row * width);
    }
    float* memory = take<float>(count);
    backend_->upload(memory, padded.data(), padded.size() * sizeof(float));
    return memory;
  }

  // The first `columns` of rows of `width`.
  Floats fetch(const float* memory, int64_t rows, int64_t width, int64_t columns) {
    std::vector<float> padded(static_cast<size_t>(rows * width));
    backend_->download(padded.data(), memory, padded.size() * sizeof(float));
    Floats result({rows, columns});
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(padded.begin() + row * width, columns, result.mutable_data() + row * columns);
    }
    return result;
  }

 private:
  static constexpr int kThreads = 2;
  onward::Device device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<onward::WeightStore> store_;
  std::vector<void*> taken_;
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
    throw InvalidArgument("kernels: x is not of the weights' columns, or a gate is added to");
  }
  if (norm) expect_shape("norm", *norm, {1, columns});
  if (bias) expect_shape("bias", *bias, {parts, outputs});
  if (add) expect_shape("add", *add, {rows, outputs});
  onward::LinearInput input;
  input.x = bench.bring(x, matrix.inputs);
  input.norm = bench.vector(norm);
  input.norm_eps = eps;
  input.size = columns;
  const Vector biases = bench.vector(bias);
  const int64_t width = matrix.outputs / parts;
  float* y = add ? bench.bring(*add, width) : bench.take<float>(rows * width);
  if (gated) {
    bench.backend().gated_linear(matrix, biases, input, rows, y);
  } else {
    bench.backend().linear(matrix, biases, input, rows, add.has_value(), y);
  }
  return bench.fetch(y, rows, width, outputs);
}

Floats embed_on(const std::string& device, const Bytes& table, const std::string& stored,
                const std::string& dtype, const Ids& ids) {
  Bench bench(device);
  const Matrix matrix = bench.pack(table, stored, dtype, 1);
  const int64_t rows = ids.size();
  for (int64_t row = 0; row < rows; ++row) {
    if (ids.data()[row] < 0 || ids.data()[row] >= table.shape(0)) {
      throw InvalidArgument("kernels: an id is outside the table");
    }
  }
  int32_t* on_device = bench.take<int32_t>(rows);
  bench.backend().upload(on_device, ids.data(), static_cast<size_t>(rows) * sizeof(int32_t));
  float* x = bench.take<float>(rows * matrix.inputs);
  bench.backend().embed(matrix, on_device, rows, x);
  return bench.fetch(x, rows, matrix.inputs, matrix.inputs);
}

}  // namespace

void bind_verbs(py::module_& k) {
  k.def("product_on", &product_on, py::arg("device"), py::arg("weights"), py::arg("stored"),
        py::arg("dtype"), py::arg("x"), py::arg("norm") = py::none(), py::arg("eps") = 0.0f,
        py::arg("bias") = py::none(), py::arg("add") = py::none(), py::arg("gated") = false);
  k.def("embed_on", &embed_on, py::arg("device"), py::arg("table"), py::arg("stored"),
        py::arg("dtype"), py::arg("ids"));
}
