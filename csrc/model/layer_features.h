// The features that a model needs of its device.
#pragma once

#include <vector>

#include "backend/layer_features.h"
#include "model/decoder_spec.h"

namespace onward {

// In the order of LayerFeature.
std::vector<LayerFeature> features_of(const DecoderSpec& spec);

}  // namespace onward
