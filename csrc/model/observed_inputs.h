// One prefill during which an observer sees the rows that each matrix of the layers is multiplied
// with, and the residual stream after each addition. Calibration of quantisation uses it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace onward {

// One product of the prefill, on the host.
struct ObservedInputs {
  std::string name;             // canonical: "layers.0.qkv" (model.h)
  int64_t rows = 0;             // one row per token
  std::vector<float> x;         // (rows, columns of the matrix), after the norm before the matrix
  std::vector<float> residual;  // (rows, hidden_size), with the product added; empty where the
                                // product is not added to the residual stream
};

// Calls the observer after the product of every matrix of every layer, in order. An exception of
// the observer ends the prefill. No logits are computed. InvalidArgument where the ids are none,
// more than max_context, or outside the vocabulary.
void observe_inputs(const std::shared_ptr<const Model>& model, std::unique_ptr<Backend> backend,
                    const std::vector<int32_t>& token_ids,
                    const std::function<void(const ObservedInputs&)>& observer);

}  // namespace onward
