// observe_inputs for Python: calls a Python function with the inputs of each matrix of a prefill.
#include <pybind11/numpy.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "device/device.h"
#include "model/observed_inputs.h"

namespace py = pybind11;

namespace {

using onward::Model;
using onward::ObservedInputs;

using TokenIds = py::array_t<int32_t, py::array::c_style>;
using Rows = py::array_t<float, py::array::c_style>;

Rows to_array(const std::vector<float>& values, int64_t rows) {
  return Rows({rows, static_cast<int64_t>(values.size()) / rows}, values.data());
}

void observe_inputs(const std::shared_ptr<Model>& model, const TokenIds& token_ids,
                    const py::function& callback, int threads) {
  if (token_ids.ndim() != 1) {
    throw onward::InvalidArgument("token_ids: found " + std::to_string(token_ids.ndim()) +
                                  " dimensions, expected 1");
  }
  const std::vector<int32_t> ids(token_ids.data(), token_ids.data() + token_ids.size());
  const auto observer = [&callback](const ObservedInputs& seen) {
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    py::object residual = py::none();
    if (!seen.residual.empty()) residual = to_array(seen.residual, seen.rows);
    callback(seen.name, to_array(seen.x, seen.rows), residual);
  };
  const py::gil_scoped_release release;
  onward::observe_inputs(model, onward::Device(model->store->device()).make_backend(threads), ids,
                         observer);
}

}  // namespace

void bind_observing(py::module_& m) {
  m.def(
      "observe_inputs", &observe_inputs, py::arg("model"), py::arg("token_ids"),
      py::arg("callback"), py::arg("threads"),
      "One prefill: callback(name, x, residual) after the product of every matrix of every layer.");
}
