// Sampling from rows of logits by any device.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "backend/backend.h"
#include "base/error.h"
#include "device/device.h"
#include "device_arrays.h"
#include "module.h"
#include "sampling/sampler.h"

namespace py = pybind11;

namespace {

using namespace onward;

// Prompt and output of one row.
using Tokens = std::pair<std::vector<int32_t>, std::vector<int32_t>>;
// The token, and its log-probabilities of the logits and after the chain, where the options ask for
// log-probabilities.
using Sampled = std::tuple<int32_t, std::optional<double>, std::optional<double>>;

Sampled sampled(const Choice& choice) {
  if (!choice.logprobs) return {choice.token, std::nullopt, std::nullopt};
  return {choice.token, choice.logprobs->raw, choice.logprobs->chain};
}

std::vector<std::optional<Sampled>> sample_rows(const std::string& device, const Floats& logits,
                                             const std::vector<SamplingOptions>& options,
                                             const std::vector<Tokens>& tokens, int threads) {
  const auto rows = static_cast<int64_t>(options.size());
  if (logits.ndim() != 2 || logits.shape(0) != rows || options.size() != tokens.size()) {
    throw InvalidArgument("kernels: logits have " + std::to_string(logits.ndim()) +
                          " dimensions, expected 2, and a row for each of " + std::to_string(rows) +
                          " options and as many tokens");
  }
  const int64_t vocab_size = logits.shape(1);
  const py::gil_scoped_release release;
  const auto backend = Device(device).make_backend(threads);
  std::vector<Sampler> samplers;
  std::vector<std::vector<int32_t>> said;
  for (size_t row = 0; row < options.size(); ++row) {
    const auto& [prompt, output] = tokens[row];
    samplers.emplace_back(std::make_shared<const SamplingOptions>(options[row]), vocab_size,
                          prompt);
    said.push_back(prompt);
    said.back().insert(said.back().end(), output.begin(), output.end());
    for (const int32_t token : output) samplers.back().remember(token);
  }
  std::vector<std::optional<Sampled>> found(options.size());
  if (!backend->samples_rows()) {
    std::vector<float> row(static_cast<size_t>(vocab_size));
    for (size_t i = 0; i < options.size(); ++i) {
      std::copy_n(logits.data() + static_cast<int64_t>(i) * vocab_size, vocab_size, row.begin());
      found[i] = sampled(samplers[i].sample(row.data(), said[i]));
    }
    return found;
  }
  DeviceArrays arrays(*backend);
  const int64_t stride = activation_stride(vocab_size);
  const float* const on_device = arrays.copy_of(padded_rows(logits, stride));
  std::vector<RowSampling> asked;
  std::vector<size_t> row_of;
  for (size_t i = 0; i < options.size(); ++i) {
    std::optional<RowSampling> row = samplers[i].on_device(said[i]);
    if (!row) continue;
    row->row = static_cast<int64_t>(i);
    asked.push_back(*std::move(row));
    row_of.push_back(i);
  }
  const std::vector<RowChoice> choices =
      backend->sample_rows(on_device, stride, vocab_size, asked);
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].token >= 0) found[row_of[i]] = sampled(samplers[row_of[i]].take(choices[i]));
  }
  return found;
}

}  // namespace

void bind_sampling(py::module_& m) {
  m.def("sample_rows", &sample_rows, py::arg("device"), py::arg("logits"), py::arg("options"),
        py::arg("tokens"), py::arg("threads") = 1,
        "For each row of logits (rows, vocab_size), with its own options and its own (prompt, "
        "output): the token, and where the options ask for them its log-probabilities of the "
        "logits and after the chain. None for a row that the device leaves to the host.");
}
