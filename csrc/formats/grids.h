// The grids of IQ2_XXS, IQ2_XS, IQ2_S (8 values of 2 bits an entry), IQ3_XXS and IQ3_S (4 values of
// 3 bits), and the magnitudes that these bits choose.
#pragma once

#include <cstdint>

namespace onward {

extern const uint16_t kIq2Xxs[256];
extern const uint16_t kIq2Xs[512];
extern const uint16_t kIq2S[1024];
extern const uint16_t kIq3Xxs[256];
extern const uint16_t kIq3S[512];

constexpr int8_t kIq2Magnitudes[4] = {8, 25, 43, 0};
constexpr int8_t kIq3XxsMagnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kIq3SMagnitudes[8] = {1, 3, 5, 7, 9, 11, 13, 15};

}  // namespace onward
