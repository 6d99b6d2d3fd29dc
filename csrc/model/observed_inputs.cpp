#include "model/observed_inputs.h"

#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "cache/sequence_blocks.h"
#include "model/decoder.h"
#include "model/observing_backend.h"

namespace onward {
namespace {

struct Place {
  std::string name;
  int64_t columns = 0;  // of x, without padding
};

std::map<const void*, Place> places_of(const Model& model) {
  const DecoderSpec& spec = model.spec;
  std::map<const void*, Place> places;
  for (int64_t index = 0; index < spec.num_layers; ++index) {
    const LayerWeights& layer = model.layers[static_cast<size_t>(index)];
    const std::string prefix = "layers." + std::to_string(index) + ".";
    places[layer.qkv.data] = {prefix + "qkv", spec.hidden_size};
    places[layer.o.data] = {prefix + "o", spec.heads_of(index) * spec.value_dim_of(index)};
    places[layer.gate_up.data] = {prefix + (spec.mlp.gated ? "gate_up" : "up"), spec.hidden_size};
    places[layer.down.data] = {prefix + "down", spec.intermediate_size};
  }
  return places;
}

// device: (rows, stride). Returns (rows, columns).
std::vector<float> downloaded(Backend& backend, const float* device, int64_t rows, int64_t stride,
                              int64_t columns) {
  std::vector<float> host(static_cast<size_t>(rows * columns));
  for (int64_t row = 0; row < rows; ++row) {
    backend.download(host.data() + row * columns, device + row * stride,
                     static_cast<size_t>(columns) * sizeof(float));
  }
  return host;
}

// The rows as the product sees them: normalised on the device if it normalises them.
std::vector<float> input_rows(Backend& backend, const ObservedLinear& linear, int64_t columns) {
  const LinearInput& input = linear.input;
  const int64_t stride = linear.weight.inputs;
  if (input.norm.empty()) return downloaded(backend, input.x, linear.rows, stride, columns);
  const auto release = [&](float* memory) { backend.release(memory); };
  const std::unique_ptr<float, decltype(release)> normed(
      static_cast<float*>(
          backend.allocate(static_cast<size_t>(linear.rows * stride) * sizeof(float))),
      release);
  backend.normalise(input, linear.rows, normed.get());
  return downloaded(backend, normed.get(), linear.rows, stride, columns);
}

void check_ids(const std::vector<int32_t>& ids, const DecoderSpec& spec) {
  const auto count = static_cast<int64_t>(ids.size());
  if (count < 1 || count > spec.max_context) {
    throw InvalidArgument("token_ids: found " + std::to_string(count) + " ids, expected 1 to " +
                          std::to_string(spec.max_context));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < spec.vocab_size) continue;
    throw InvalidArgument("token_ids: found id " + std::to_string(ids[i]) + " at position " +
                          std::to_string(i) + ", expected 0 to " +
                          std::to_string(spec.vocab_size - 1));
  }
}

}  // namespace

void observe_inputs(const std::shared_ptr<const Model>& model, std::unique_ptr<Backend> backend,
                    const std::vector<int32_t>& token_ids,
                    const std::function<void(const ObservedInputs&)>& observer) {
  check_ids(token_ids, model->spec);
  const std::map<const void*, Place> places = places_of(*model);
  Backend& memory = *backend;  // the observing backend owns it and lives as long as the calls
  ObservingBackend observing(std::move(backend), [&](const ObservedLinear& linear) {
    const auto place = places.find(linear.weight.data);
    if (place == places.end()) throw Error("observe_inputs: a product of an unknown matrix");
    const auto& [name, columns] = place->second;
    ObservedInputs seen;
    seen.name = name;
    seen.rows = linear.rows;
    seen.x = input_rows(memory, linear, columns);
    if (linear.add) {
      seen.residual =
          downloaded(memory, linear.y, linear.rows, linear.weight.outputs, model->spec.hidden_size);
    }
    observer(seen);
  });

  Decoder decoder(model, observing);
  CacheBudget budget;
  BlockStore store(observing, decoder.cache_layout(), budget);
  SequenceBlocks place(store);
  const auto tokens = static_cast<int64_t>(token_ids.size());
  place.prepare(tokens);
  StepBatch batch;  // one step, and no rows whose logits are wanted
  batch.token_ids = token_ids;
  batch.slices.push_back({0, tokens, 0, place.blocks()});
  decoder.forward(batch, [] {});
}

}  // namespace onward
