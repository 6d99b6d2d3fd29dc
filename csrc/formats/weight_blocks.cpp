#include "formats/weight_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "formats/dequantize.h"

namespace onward {
namespace {

constexpr int kValues = static_cast<int>(kGroupValues);
constexpr float kSmallestHalf = 0x1p-24f;
constexpr float kCoarseScale = 128 * kSmallestHalf;
constexpr float kLargestHalf = 65504.0f;

// Nearest integer, ties to even, of a float below 2^22. Unlike std::nearbyint it is vectorised.
float nearest(float x) {
  constexpr float kShifter = 12582912.0f;  // 1.5 * 2^23
  return (x + kShifter) - kShifter;
}

bool finite(const float* values) {
  return std::all_of(values, values + kValues, [](float x) { return std::isfinite(x); });
}

// A sum over a block in eight lanes, so that it runs in vectors; lanes fold 8 -> 4 -> 2 -> 1.
constexpr int kLanes = 8;
struct BlockSum {
  float lanes[kLanes] = {};
  float total() const {
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  }
};

struct Fit {
  float scale;
  float minimum;
  float error;  // sum of squares
};

// x * inverse, rounded and cut to [low, high].
void round_codes(const float* x, float shift, float inverse, float low, float high, float* codes) {
  for (int i = 0; i < kValues; ++i) {
    const float code = nearest((x[i] - shift) * inverse);
    const float raised = code > low ? code : low;
    codes[i] = raised < high ? raised : high;
  }
}

float squared_error(const float* x, const float* codes, float scale, float minimum) {
  BlockSum error;
  for (int i = 0; i < kValues; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float difference = x[i + lane] - (scale * codes[i + lane] + minimum);
      error.lanes[lane] += difference * difference;
    }
  }
  return error.total();
}

// The scale that fits best with the codes of x * inverse.
Fit fit_scale(const float* x, float inverse, float low, float high) {
  float codes[kValues];
  round_codes(x, 0.0f, inverse, low, high, codes);
  BlockSum product, square;
  for (int i = 0; i < kValues; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      product.lanes[lane] += x[i + lane] * codes[i + lane];
      square.lanes[lane] += codes[i + lane] * codes[i + lane];
    }
  }
  const float squares = square.total();
  const float scale = squares > 0 ? product.total() / squares : 0.0f;
  return {scale, 0.0f, squared_error(x, codes, scale, 0.0f)};
}

// The same with a minimum: the line through (code, x). values: the sum of x.
Fit fit_line(const float* x, float values, float minimum, float inverse) {
  float codes[kValues];
  round_codes(x, minimum, inverse, 0.0f, 15.0f, codes);
  BlockSum sum, square, product;
  for (int i = 0; i < kValues; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      sum.lanes[lane] += codes[i + lane];
      square.lanes[lane] += codes[i + lane] * codes[i + lane];
      product.lanes[lane] += codes[i + lane] * x[i + lane];
    }
  }
  const float all = sum.total();
  const float spread = kValues * square.total() - all * all;
  const float scale = spread > 0 ? (kValues * product.total() - all * values) / spread : 0.0f;
  const float fitted = (values - scale * all) / kValues;
  return {scale, fitted, squared_error(x, codes, scale, fitted)};
}

// The nearest finite f16 of a finite number.
uint16_t nearest_f16(float value) {
  return float_to_f16(std::clamp(value, -kLargestHalf, kLargestHalf));
}

// The f16 of a scale. Below kCoarseScale it is rounded away from zero: the steps of f16 are so
// coarse there that a smaller scale would cut the largest weights by more than half a code of 8
// bits, and a scale of zero would lose all of them.
uint16_t scale_f16(float scale) {
  const float magnitude = std::fabs(scale);
  if (magnitude >= kCoarseScale) return nearest_f16(scale);
  return float_to_f16(std::copysign(std::ceil(magnitude / kSmallestHalf) * kSmallestHalf, scale));
}

// Codes for a stored scale.
void encode(const float* x, float zero, float high, WeightBlock& block) {
  const float scale = f16_to_float(block.scale), minimum = f16_to_float(block.minimum);
  for (int i = 0; i < kValues; ++i) {
    // Cut before rounding, since `nearest` takes small numbers only.
    const float steps = scale == 0.0f ? 0.0f : (x[i] - minimum) / scale;
    block.codes[i] = static_cast<uint8_t>(nearest(std::clamp(steps, -zero, high - zero)) + zero);
  }
}

WeightBlock round_q8_0(const float* x) {
  float largest = 0;
  for (int i = 0; i < kValues; ++i) largest = std::max(largest, std::fabs(x[i]));
  WeightBlock block;
  block.scale = scale_f16(largest / 127.0f);
  encode(x, 128.0f, 255.0f, block);
  return block;
}

WeightBlock round_q4_0(const float* x) {
  float extreme = 0;
  for (int i = 0; i < kValues; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  // Where every fit overflows, this one must not become a block of zeros.
  Fit best = {extreme / -8.0f + 0.0f, 0.0f, INFINITY};  // + 0: no minus zero
  // The extreme value gets code -8, or a little beyond the range or within it.
  for (float code = -9.6f; extreme != 0.0f && code < -5.9f; code += 0.3f) {
    const Fit fit = fit_scale(x, code / extreme, -8.0f, 7.0f);
    if (fit.error < best.error && std::fabs(fit.scale) <= kLargestHalf) best = fit;
  }
  WeightBlock block;
  block.scale = scale_f16(best.scale);
  encode(x, 8.0f, 15.0f, block);
  return block;
}

WeightBlock round_q4_1(const float* x) {
  const auto [least, most] = std::minmax_element(x, x + kValues);
  Fit best = {(*most - *least) / 15.0f, *least, *most > *least ? INFINITY : 0.0f};
  // The whole range, or the range with its ends cut.
  BlockSum sum;
  for (int i = 0; i < kValues; ++i) sum.lanes[i % kLanes] += x[i];
  const float values = sum.total();
  for (float steps = 15.0f; *most > *least && steps < 18.6f; steps += 0.5f) {
    const float inverse = steps / (*most - *least);
    const float cut = (steps - 15.0f) / 2 / inverse;
    const Fit fit = fit_line(x, values, *least + cut, inverse);
    if (fit.error < best.error) best = fit;
  }
  WeightBlock block;
  block.scale = scale_f16(best.scale);
  block.minimum = nearest_f16(best.minimum);
  encode(x, 0.0f, 15.0f, block);
  return block;
}

uint16_t read_f16(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

// A run of scaled whole numbers as q8_0. In most formats the scale is an f16. Otherwise it is
// rounded to f16 if f16 has its full precision there; if not, the values are rounded anew.
WeightBlock scaled_block(DType stored, const void* row, int64_t first) {
  const ScaledRun run = read_scaled_run(stored, row, first);
  WeightBlock block;
  block.scale = float_to_f16(run.scale);
  const float magnitude = std::fabs(run.scale);
  const bool precise = magnitude >= 0x1p-14f && magnitude <= 65504.0f;
  if (!precise && std::isfinite(run.scale) && f16_to_float(block.scale) != run.scale) {
    float values[kValues];
    read_row(stored, row, first, kValues, values);
    return rounded_block(DType::q8_0, values);
  }
  for (int i = 0; i < kValues; ++i) block.codes[i] = static_cast<uint8_t>(run.codes[i] + 128);
  return block;
}

}  // namespace

bool holds_same_codes(DType stored, DType packed) {
  return (stored == packed && dtype_block_values(packed) == kGroupValues) ||
         (stored == DType::q4_k && packed == DType::q4_1) ||
         (packed == DType::q8_0 && has_scaled_runs(stored));
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
  if (has_scaled_runs(stored)) return scaled_block(stored, row, first);
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

}  // namespace onward
