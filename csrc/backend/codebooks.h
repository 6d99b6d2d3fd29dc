// The constants of coded keys and values: the integers of each codebook, and the signs of the
// rotation. Data only, because every instruction set's file includes it. cpu/kernels.h describes
// the layout of codes in memory, and kv_codecs.h the codebook of each codec.
#pragma once

#include <cstdint>

namespace onward {

// The value of code n is the n-th integer times the scale of the vector. The integers are the
// optimal quantiser of a normal distribution (Lloyd 1957, Max 1960), scaled until the largest is
// 127 and rounded, for dot products of bytes. They are symmetric: code n is the negative of code
// last - n.
constexpr int8_t kTurbo4Integers[16] = {-127, -96, -75, -58, -44, -31, -18, -6,
                                        6,    18,  31,  44,  58,  75,  96,  127};
constexpr int8_t kTurbo3Integers[8] = {-127, -79, -45, -14, 14, 45, 79, 127};
constexpr int8_t kTurbo2Integers[4] = {-127, -38, 38, 127};

// The scaling of the integers: the standard deviation in units of the integers.
constexpr float kTurbo4Deviation = 46.476f;
constexpr float kTurbo3Deviation = 59.015f;
constexpr float kTurbo2Deviation = 84.083f;

// A codebook of 2^bits integers and its deviation.
struct Codebook {
  const int8_t* integers = nullptr;  // null: the codes are integers themselves
  float deviation = 0.0f;
};

// The steps that the encoder tries, in units of the step from the vector's standard deviation.
constexpr int kTurboFactorCount = 13;
constexpr float kTurboFactors[kTurboFactorCount] = {0.7f,  0.75f, 0.8f,  0.85f, 0.9f,  0.95f, 1.0f,
                                                    1.05f, 1.1f,  1.15f, 1.2f,  1.25f, 1.3f};

// Bit i % 32 of word i / 32 is set if the rotation negates coordinate i of 512. The bits are the
// first binary digits of pi - 3.
constexpr uint32_t kRotationSigns[16] = {
    0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0x082efa98, 0xec4e6c89,
    0x452821e6, 0x38d01377, 0xbe5466cf, 0x34e90c6c, 0xc0ac29b7, 0xc97c50dd, 0x3f84d5b5, 0xb5470917};

}  // namespace onward
