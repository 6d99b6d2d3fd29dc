// Block formats of GGUF whose codes choose entries of a grid: blocks of 256 values, in groups of 8
// or 4 that share a code, with a sign for each value.
#include "formats/block_readers.h"
#include "formats/grids.h"

namespace onward {
namespace {

// The signs of 8 values from a number of 7 bits: bit i is the sign of value i. The eighth sign
// makes the number of minus signs even.
int signs_of(uint32_t number) {
  int parity = 0;
  for (uint32_t rest = number; rest != 0; rest &= rest - 1) parity ^= 1;
  return static_cast<int>(number) | parity << 7;
}

int8_t signed_code(int8_t magnitude, bool minus) {
  return static_cast<int8_t>(minus ? -magnitude : magnitude);
}

// 8 values of one entry.
void write_eight(uint16_t entry, int signs, int8_t* codes) {
  for (int i = 0; i < 8; ++i) {
    codes[i] = signed_code(kIq2Magnitudes[entry >> 2 * i & 3], signs >> i & 1);
  }
}

// 8 values of two entries.
void write_two_fours(const int8_t* magnitudes, uint16_t first, uint16_t second, int signs,
                     int8_t* codes) {
  for (int i = 0; i < 8; ++i) {
    const int place = (i < 4 ? first : second) >> 3 * (i % 4) & 7;
    codes[i] = signed_code(magnitudes[place], signs >> i & 1);
  }
}

// A scale of 4 bits, and a half.
float with_half(const uint8_t* block, uint32_t scale, float factor) {
  return read_half(block) * (0.5f + static_cast<float>(scale)) * factor;
}

// A run with a scale for each of its halves.
void write_halves(const int8_t* codes, const uint8_t* block, uint8_t scales, float* out) {
  const float low = with_half(block, scales & 15, 0.25f);
  const float high = with_half(block, scales >> 4, 0.25f);
  for (int i = 0; i < kRun; ++i) out[i] = (i < kHalf ? low : high) * static_cast<float>(codes[i]);
}

}  // namespace

// f16 d, and for each run 4 bytes of codes and a word: 4 numbers of 7 bits for the signs, and 4
// bits of scale.
ScaledRun iq2_xxs_run(const uint8_t* block, int64_t run) {
  const uint8_t* codes = block + 2 + run * 8;
  const uint32_t word = load<uint32_t>(codes + 4);
  ScaledRun result = {with_half(block, word >> 28, 0.25f), {}};
  for (int g = 0; g < 4; ++g) {
    write_eight(kIq2Xxs[codes[g]], signs_of(word >> 7 * g & 127), result.codes + g * 8);
  }
  return result;
}

// f16 d, 32 codes of 9 bits with the number of their signs above, 8 bytes with the scales of each
// 16 values.
void read_iq2_xs(const uint8_t* block, int64_t run, float* out) {
  int8_t codes[kRun];
  for (int64_t g = 0; g < 4; ++g) {
    const uint16_t code = load<uint16_t>(block + 2 + (run * 4 + g) * 2);
    write_eight(kIq2Xs[code & 511], signs_of(code >> 9), codes + g * 8);
  }
  write_halves(codes, block, block[66 + run], out);
}

// f16 d, the low 8 bits of 32 codes, 32 bytes of signs, the high 2 bits of the codes, 8 bytes with
// the scales of each 16 values.
void read_iq2_s(const uint8_t* block, int64_t run, float* out) {
  int8_t codes[kRun];
  for (int64_t g = 0; g < 4; ++g) {
    const int high = block[66 + run] >> 2 * g & 3;
    const int code = block[2 + run * 4 + g] | high << 8;
    write_eight(kIq2S[code], block[34 + run * 4 + g], codes + g * 8);
  }
  write_halves(codes, block, block[74 + run], out);
}

// f16 d, 64 codes, and for each run a word as in IQ2_XXS.
ScaledRun iq3_xxs_run(const uint8_t* block, int64_t run) {
  const uint8_t* codes = block + 2 + run * 8;
  const uint32_t word = load<uint32_t>(block + 66 + run * 4);
  ScaledRun result = {with_half(block, word >> 28, 0.5f), {}};
  for (int g = 0; g < 4; ++g) {
    write_two_fours(kIq3XxsMagnitudes, kIq3Xxs[codes[2 * g]], kIq3Xxs[codes[2 * g + 1]],
                    signs_of(word >> 7 * g & 127), result.codes + g * 8);
  }
  return result;
}

// f16 d, the low 8 bits of 64 codes, their ninth bits, 32 bytes of signs, 4 bytes with the scales
// of the runs: d * (1 + 2 scale).
ScaledRun iq3_s_run(const uint8_t* block, int64_t run) {
  const uint8_t* low = block + 2 + run * 8;
  const int high = block[66 + run];
  const int scale = block[106 + run / 2] >> run % 2 * 4 & 15;
  ScaledRun result = {read_half(block) * static_cast<float>(1 + 2 * scale), {}};
  for (int g = 0; g < 4; ++g) {
    const int first = low[2 * g] | (high >> 2 * g & 1) << 8;
    const int second = low[2 * g + 1] | (high >> (2 * g + 1) & 1) << 8;
    write_two_fours(kIq3SMagnitudes, kIq3S[first], kIq3S[second], block[74 + run * 4 + g],
                    result.codes + g * 8);
  }
  return result;
}

}  // namespace onward
