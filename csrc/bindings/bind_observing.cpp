// observe_inputs for Python: one prefill during which a callback sees the rows that each matrix of
// the layers meets, and the residual stream as it grows. The GIL is released but for the callback
// and the signals polled beside it.
#include <pybind11/numpy.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "cache/cache_place.h"
#include "device/device.h"
#include "model/decoder.h"
#include "model/observing_backend.h"

namespace py = pybind11;

namespace {

using onward::Backend;
using onward::DecoderSpec;
using onward::Model;
using onward::ObservedLinear;

using TokenIds = py::array_t<int32_t, py::array::c_style>;
using Rows = py::array_t<float, py::array::c_style>;

struct Place {
  std::string name;     // canonical, see model.h
  int64_t columns = 0;  // of x, without padding
};

std::map<const void*, Place> places(const Model& model) {
  const DecoderSpec& spec = model.spec;
  std::map<const void*, Place> found;
  for (int64_t index = 0; index < spec.num_layers; ++index) {
    const onward::LayerWeights& layer = model.layers[static_cast<size_t>(index)];
    const std::string prefix = "layers." + std::to_string(index) + ".";
    found[layer.qkv.data] = {prefix + "qkv", spec.hidden_size};
    found[layer.o.data] = {prefix + "o", spec.num_heads * spec.head_dim};
    found[layer.gate_up.data] = {prefix + "gate_up", spec.hidden_size};
    found[layer.down.data] = {prefix + "down", spec.intermediate_size};
  }
  return found;
}

// (rows, stride) on the device -> (rows, columns) for Python.
Rows downloaded(Backend& backend, const float* device, int64_t rows, int64_t stride,
                int64_t columns) {
  Rows host({rows, columns});
  for (int64_t row = 0; row < rows; ++row) {
    backend.download(host.mutable_data(row), device + row * stride,
                     static_cast<size_t>(columns) * sizeof(float));
  }
  return host;
}

// RMSNorm in place, as the product does it on the way. rows: (rows, columns)
void normalise(Backend& backend, const onward::LinearInput& input, Rows& rows) {
  const py::ssize_t columns = rows.shape(1);
  std::vector<float> weight(static_cast<size_t>(columns));
  backend.download(weight.data(), input.norm.data, weight.size() * sizeof(float));
  for (py::ssize_t row = 0; row < rows.shape(0); ++row) {
    float* x = rows.mutable_data(row);
    double squares = 0;
    for (py::ssize_t i = 0; i < columns; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(columns) + input.norm_eps);
    for (py::ssize_t i = 0; i < columns; ++i) {
      x[i] = static_cast<float>(x[i] * inverse * weight[static_cast<size_t>(i)]);
    }
  }
}

void check_ids(const TokenIds& ids, int64_t vocab_size, int64_t max_context) {
  if (ids.ndim() != 1 || ids.size() < 1 || ids.size() > max_context) {
    throw onward::InvalidArgument(
        "token_ids: " + std::to_string(ids.size()) + " ids in " + std::to_string(ids.ndim()) +
        " dimensions, expected 1 dimension of 1 to " + std::to_string(max_context));
  }
  for (py::ssize_t i = 0; i < ids.size(); ++i) {
    if (ids.data()[i] < 0 || ids.data()[i] >= vocab_size) {
      throw onward::InvalidArgument("token_ids: id " + std::to_string(ids.data()[i]) +
                                    " at position " + std::to_string(i) + ", expected 0 to " +
                                    std::to_string(vocab_size - 1));
    }
  }
}

void observe_inputs(const std::shared_ptr<Model>& model, const TokenIds& token_ids,
                    const py::function& callback, int threads) {
  check_ids(token_ids, model->spec.vocab_size, model->spec.max_context);
  const std::map<const void*, Place> known = places(*model);
  std::unique_ptr<Backend> device = onward::Device(model->store->device()).make_backend(threads);
  Backend& memory = *device;  // outlived by the observing backend that owns it
  onward::ObservingBackend backend(std::move(device), [&](const ObservedLinear& linear) {
    const auto place = known.find(linear.weight.data);
    if (place == known.end()) throw onward::Error("observe_inputs: a product without a name");
    py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    const int64_t rows = linear.rows;
    Rows x = downloaded(memory, linear.input.x, rows, linear.weight.inputs, place->second.columns);
    if (!linear.input.norm.empty()) normalise(memory, linear.input, x);
    py::object residual = py::none();
    if (linear.add) {  // to the residual stream
      residual = downloaded(memory, linear.y, rows, linear.weight.outputs, model->spec.hidden_size);
    }
    callback(place->second.name, x, residual);
  });
  const onward::Decoder::Poll no_poll = [] {};  // the callback is where signals are looked at

  py::gil_scoped_release release;
  onward::Decoder decoder(model, backend);
  onward::CacheBudget budget;
  onward::BlockStore store(backend, decoder.cache_layout(), budget);
  onward::CachePlace place(store);
  const int64_t tokens = token_ids.size();
  place.prepare(tokens);
  onward::StepBatch batch;  // one step, and no logits
  batch.token_ids.assign(token_ids.data(), token_ids.data() + tokens);
  batch.slices.push_back({0, tokens, 0, place.blocks()});
  decoder.forward(batch, no_poll);
}

}  // namespace

void bind_observing(py::module_& m) {
  m.def(
      "observe_inputs", &observe_inputs, py::arg("model"), py::arg("token_ids"),
      py::arg("callback"), py::arg("threads"),
      "One prefill: callback(name, x, residual) after the product of every matrix of every layer.");
}
