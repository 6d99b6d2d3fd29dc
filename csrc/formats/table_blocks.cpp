// Block formats of GGUF with one scale for 32 or more values, and codes that choose whole numbers
// from a table: IQ4_NL, IQ4_XS, MXFP4, TQ1_0, TQ2_0.
#include "formats/block_readers.h"

namespace onward {
namespace {

constexpr int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

// The values of 4-bit floats (sign, 2 bits of exponent, 1 bit), doubled.
constexpr int8_t kMiniFloat[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void look_up(const int8_t* table, const uint8_t* nibbles, ScaledRun& run) {
  int q[kRun];
  unpack_nibbles(nibbles, q);
  for (int i = 0; i < kRun; ++i) run.codes[i] = table[q[i]];
}

// Digit number `digit` of a byte that is a fraction of 256 with base-3 digits: 0, 1 or 2.
int base3_digit(uint8_t byte, int64_t digit) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  return static_cast<uint8_t>(byte * kPowers[digit]) * 3 >> 8;
}

}  // namespace

// f16 d, 32 nibbles
ScaledRun iq4_nl_run(const uint8_t* block, int64_t) {
  ScaledRun run = {read_half(block), {}};
  look_up(kNonLinear, block + 2, run);
  return run;
}

// f16 d, 2 bytes with the high 2 bits of the scales of 8 runs, 4 bytes with their low 4 bits (the
// even ones low), 16 bytes of nibbles for each run: d * (scale - 32).
ScaledRun iq4_xs_run(const uint8_t* block, int64_t number) {
  const int high = load<uint16_t>(block + 2) >> number * 2 & 3;
  const int low = block[4 + number / 2] >> number % 2 * 4 & 15;
  ScaledRun run = {read_half(block) * static_cast<float>((low | high << 4) - 32), {}};
  look_up(kNonLinear, block + 8 + number * kHalf, run);
  return run;
}

// An exponent e, 32 nibbles. The table is doubled, so the scale is half of 2^(e - 127). The two
// smallest are float32 subnormals.
ScaledRun mxfp4_run(const uint8_t* block, int64_t) {
  const uint32_t exponent = block[0];
  const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
  ScaledRun run = {bits_to_float(bits), {}};
  look_up(kMiniFloat, block + 1, run);
  return run;
}

// 48 bytes with 5 values each, 4 bytes with 4 values each, f16 d: d * (digit - 1). Values 0..159
// are digits 0..4 of bytes 0..31, values 160..239 digits 0..4 of bytes 32..47, and the last 16
// values digits 0..3 of the last 4 bytes.
ScaledRun tq1_0_run(const uint8_t* block, int64_t number) {
  ScaledRun run = {read_half(block + 52), {}};
  for (int64_t i = 0; i < kRun; ++i) {
    const int64_t value = number * kRun + i;
    const uint8_t byte = value < 160   ? block[value % 32]
                         : value < 240 ? block[32 + value % 16]
                                       : block[48 + value % 4];
    const int64_t digit = value < 160   ? value / 32
                          : value < 240 ? (value - 160) / 16
                                        : (value - 240) / 4;
    run.codes[i] = static_cast<int8_t>(base3_digit(byte, digit) - 1);
  }
  return run;
}

// 64 bytes of 2-bit codes in the layout of Q2_K, f16 d: d * (q - 1).
ScaledRun tq2_0_run(const uint8_t* block, int64_t number) {
  const uint8_t* pairs = block + number / 4 * kRun;
  ScaledRun run = {read_half(block + 64), {}};
  for (int i = 0; i < kRun; ++i) {
    run.codes[i] = static_cast<int8_t>((pairs[i] >> number % 4 * 2 & 3) - 1);
  }
  return run;
}

}  // namespace onward
