#include "cpu/weight_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "cpu/dequantize.h"

namespace onward::cpu {
namespace {

constexpr int kValues = static_cast<int>(kGroupValues);

// Nearest integer, ties to even, of a float below 2^22; unlike std::nearbyint in vectors.
float nearest(float x) {
  constexpr float kShifter = 12582912.0f;  // 1.5 * 2^23
  return (x + kShifter) - kShifter;
}

bool finite(const float* values) {
  return std::all_of(values, values + kValues, [](float x) { return std::isfinite(x); });
}

struct Fit {
  float scale;
  float minimum;
  float error;  // sum of squares
};

// codes = (x - minimum) * inverse, rounded and cut to [low, high]; then the scale that fits them
// best.
Fit fit_scale(const float* x, float inverse, float low, float high) {
  float codes[kValues];
  for (int i = 0; i < kValues; ++i) {
    codes[i] = std::min(high, std::max(low, nearest(x[i] * inverse)));
  }
  float product = 0, square = 0;
  for (int i = 0; i < kValues; ++i) {
    product += x[i] * codes[i];
    square += codes[i] * codes[i];
  }
  Fit fit = {square > 0 ? product / square : 0.0f, 0.0f, 0.0f};
  for (int i = 0; i < kValues; ++i) {
    const float difference = x[i] - fit.scale * codes[i];
    fit.error += difference * difference;
  }
  return fit;
}

// The same with a minimum: the line through (code, x).
Fit fit_line(const float* x, float minimum, float inverse) {
  float codes[kValues];
  for (int i = 0; i < kValues; ++i) {
    codes[i] = std::min(15.0f, std::max(0.0f, nearest((x[i] - minimum) * inverse)));
  }
  float sum_c = 0, sum_x = 0, sum_cc = 0, sum_cx = 0;
  for (int i = 0; i < kValues; ++i) {
    sum_c += codes[i];
    sum_x += x[i];
    sum_cc += codes[i] * codes[i];
    sum_cx += codes[i] * x[i];
  }
  const float spread = kValues * sum_cc - sum_c * sum_c;
  Fit fit = {spread > 0 ? (kValues * sum_cx - sum_c * sum_x) / spread : 0.0f, 0.0f, 0.0f};
  fit.minimum = (sum_x - fit.scale * sum_c) / kValues;
  for (int i = 0; i < kValues; ++i) {
    const float difference = x[i] - (fit.scale * codes[i] + fit.minimum);
    fit.error += difference * difference;
  }
  return fit;
}

// Codes for a scale as it is stored.
void encode(const float* x, float zero, float high, WeightBlock& block) {
  const float scale = f16_to_float(block.scale), minimum = f16_to_float(block.minimum);
  for (int i = 0; i < kValues; ++i) {
    // Not std::clamp: where scale and minimum overflow f16 the code is a NaN, and has to become some
    // number.
    const float code = (scale == 0.0f ? 0.0f : nearest((x[i] - minimum) / scale)) + zero;
    block.codes[i] = static_cast<uint8_t>(std::min(high, code > 0.0f ? code : 0.0f));
  }
}

WeightBlock round_q8_0(const float* x) {
  float largest = 0;
  for (int i = 0; i < kValues; ++i) largest = std::max(largest, std::fabs(x[i]));
  WeightBlock block;
  block.scale = float_to_f16(largest / 127.0f);
  encode(x, 128.0f, 255.0f, block);
  return block;
}

WeightBlock round_q4_0(const float* x) {
  float extreme = 0;
  for (int i = 0; i < kValues; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  Fit best = {0.0f, 0.0f, INFINITY};
  // The extreme value gets code -8, or a little beyond the range or within it.
  for (float code = -9.6f; extreme != 0.0f && code < -5.9f; code += 0.3f) {
    const Fit fit = fit_scale(x, code / extreme, -8.0f, 7.0f);
    if (fit.error < best.error) best = fit;
  }
  WeightBlock block;
  block.scale = float_to_f16(best.scale);
  encode(x, 8.0f, 15.0f, block);
  return block;
}

WeightBlock round_q4_1(const float* x) {
  const auto [least, most] = std::minmax_element(x, x + kValues);
  Fit best = {0.0f, *least, *most > *least ? INFINITY : 0.0f};
  // The range as it is, or with its ends cut.
  for (float steps = 15.0f; *most > *least && steps < 18.6f; steps += 0.5f) {
    const float inverse = steps / (*most - *least);
    const float cut = (steps - 15.0f) / 2 / inverse;
    const Fit fit = fit_line(x, *least + cut, inverse);
    if (fit.error < best.error) best = fit;
  }
  WeightBlock block;
  block.scale = float_to_f16(best.scale);
  block.minimum = float_to_f16(best.minimum);
  encode(x, 0.0f, 15.0f, block);
  return block;
}

uint16_t read_f16(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

}  // namespace

bool holds_same_codes(DType stored, DType packed) {
  return (stored == packed && dtype_block_values(packed) == kGroupValues) ||
         (stored == DType::q4_k && packed == DType::q4_1);
}

WeightBlock stored_block(DType stored, const void* row, int64_t first) {
  WeightBlock block;
  if (stored == DType::q4_k) {
    const Q4kRun run = read_q4_k_run(row, first);
    block.scale = float_to_f16(run.scale);
    block.minimum = float_to_f16(run.minimum);
    std::copy_n(run.codes, kValues, block.codes);
    return block;
  }
  const uint8_t* bytes =
      static_cast<const uint8_t*>(row) + first / kValues * dtype_block_bytes(stored);
  block.scale = read_f16(bytes);
  if (stored == DType::q8_0) {
    // From two's complement to an offset of 128.
    for (int i = 0; i < kValues; ++i) block.codes[i] = bytes[2 + i] ^ 0x80;
    return block;
  }
  const uint8_t* nibbles = bytes + 2;
  if (stored == DType::q4_1) {
    block.minimum = read_f16(bytes + 2);
    nibbles += 2;
  }
  for (int i = 0; i < kValues / 2; ++i) {
    block.codes[i] = nibbles[i] & 15;
    block.codes[i + kValues / 2] = nibbles[i] >> 4;
  }
  return block;
}

WeightBlock rounded_block(DType packed, const float* values) {
  if (!finite(values)) {
    WeightBlock block;
    block.scale = 0x7e00;
    return block;
  }
  return packed == DType::q8_0   ? round_q8_0(values)
         : packed == DType::q4_0 ? round_q4_0(values)
                                 : round_q4_1(values);
}

void read_block(DType packed, const WeightBlock& block, float* out) {
  const int zero = packed == DType::q8_0 ? 128 : packed == DType::q4_0 ? 8 : 0;
  const float scale = f16_to_float(block.scale), minimum = f16_to_float(block.minimum);
  for (int i = 0; i < kValues; ++i) {
    const float value = scale * static_cast<float>(block.codes[i] - zero);
    out[i] = packed == DType::q4_1 ? value + minimum : value;
  }
}

}  // namespace onward::cpu
