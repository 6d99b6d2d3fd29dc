#include "base/philox.h"

namespace onward {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

double philox_uniform(uint64_t seed, uint64_t stream, uint64_t step, int lane) {
  const auto bits = philox4x32({static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32),
                                static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t word =
      lane == 0 ? (uint64_t{bits[0]} << 32) | bits[1] : (uint64_t{bits[2]} << 32) | bits[3];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

}  // namespace onward
