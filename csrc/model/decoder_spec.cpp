#include "model/decoder_spec.h"

#include <cmath>

#include "base/error.h"

namespace onward {
namespace {

// Far above any published model; keeps every product of two sizes inside 64 bits.
constexpr int64_t kMaxSize = int64_t{1} << 28;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeadDim = 512;
constexpr int64_t kMaxContext = int64_t{1} << 48;

void in_range(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw InvalidArgument(std::string("spec: ") + field + " is " + std::to_string(value) +
                        ", expected " + std::to_string(low) + " to " + std::to_string(high));
}

}  // namespace

void DecoderSpec::validate() const {
  in_range("vocab_size", vocab_size, 1, kMaxSize);
  in_range("hidden_size", hidden_size, 1, kMaxSize);
  in_range("intermediate_size", intermediate_size, 1, kMaxSize);
  in_range("num_layers", num_layers, 1, kMaxLayers);
  in_range("num_heads", num_heads, 1, 65536);
  in_range("num_kv_heads", num_kv_heads, 1, num_heads);
  in_range("head_dim", head_dim, 2, kMaxHeadDim);
  in_range("max_context", max_context, 1, kMaxContext);
  if (num_heads % num_kv_heads != 0) {
    throw InvalidArgument("spec: num_heads is " + std::to_string(num_heads) +
                          ", expected a multiple of num_kv_heads " + std::to_string(num_kv_heads));
  }
  if (head_dim % 2 != 0) {
    throw InvalidArgument("spec: head_dim is " + std::to_string(head_dim) + ", expected even");
  }
  in_range("rope_inv_freq length", static_cast<int64_t>(rope.inv_freq.size()), head_dim / 2,
           head_dim / 2);
  for (const float frequency : rope.inv_freq) {
    if (!std::isfinite(frequency)) throw InvalidArgument("spec: rope_inv_freq is not finite");
  }
  if (!std::isfinite(norm_eps) || norm_eps < 0) {
    throw InvalidArgument("spec: norm_eps is " + std::to_string(norm_eps) +
                          ", expected a finite value of at least 0");
  }
  if (rope.dynamic_factor != 0 &&
      !(rope.dynamic_factor >= 1 && rope.dynamic_original_context >= 1 && head_dim > 2)) {
    throw InvalidArgument(
        "spec: rope_dynamic_factor needs a factor of at least 1, an original "
        "context and a head_dim above 2");
  }
  if (!windows.empty()) {
    in_range("windows length", static_cast<int64_t>(windows.size()), num_layers, num_layers);
    for (const int64_t window : windows) in_range("windows", window, 0, kMaxContext);
  }
}

}  // namespace onward
