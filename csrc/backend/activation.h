// The activations of MLPs and experts. Plain types only (cpu/kernels.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace onward {

enum class Activation : uint8_t {
  silu,        // x * sigmoid(x)
  gelu,        // x * (1 + erf(x / sqrt(2))) / 2 (Hendrycks & Gimpel 2016)
  gelu_tanh,   // its approximation with tanh
  quick_gelu,  // x * sigmoid(1.702 x)
  relu,
  relu2,  // relu(x)^2 (So et al. 2021)
  sigmoid,
  xielu,  // Huang & Schlag 2024; its four parameters are weights: alpha_p, alpha_n, beta, eps
};

constexpr const char* kActivationNames[] = {"silu", "gelu",  "gelu_tanh", "quick_gelu",
                                            "relu", "relu2", "sigmoid",   "xielu"};
constexpr size_t kActivations = sizeof kActivationNames / sizeof *kActivationNames;
static_assert(kActivations == static_cast<size_t>(Activation::xielu) + 1);

// How the products of an MLP become its inner values: act(min(gate, limit)) * (clamp(up, -limit,
// limit) + up_shift), where limit 0 means no clamping; act(up) if it is not gated.
// (SwiGLU, Shazeer 2020; gpt-oss has limit 7, up_shift 1 and quick_gelu.)
struct Gate {
  Activation activation = Activation::silu;
  bool gated = true;
  float limit = 0;
  float up_shift = 0;
};

}  // namespace onward
