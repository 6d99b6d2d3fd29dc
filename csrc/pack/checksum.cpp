#include "pack/checksum.h"

#include <array>
#include <cstring>

namespace onward {
namespace {

constexpr size_t kStep = 8;  // bytes a round: the eight look-ups are independent
using Tables = std::array<std::array<uint32_t, 256>, kStep>;

// tables[k][b]: the effect of byte b on the checksum when k more bytes follow it in the round.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0xEDB88320u : 0u);
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < kStep; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t value = tables[k - 1][byte];
      tables[k][byte] = (value >> 8) ^ tables[0][value & 255];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

uint32_t load(const uint8_t* at) {  // little-endian on every machine
  return uint32_t{at[0]} | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24;
}

}  // namespace

uint32_t crc32(const void* data, size_t bytes, uint32_t before) {
  const uint8_t* at = static_cast<const uint8_t*>(data);
  uint32_t sum = ~before;
  for (; bytes >= kStep; bytes -= kStep, at += kStep) {
    const uint32_t low = load(at) ^ sum, high = load(at + 4);
    sum = kTables[7][low & 255] ^ kTables[6][low >> 8 & 255] ^ kTables[5][low >> 16 & 255] ^
          kTables[4][low >> 24] ^ kTables[3][high & 255] ^ kTables[2][high >> 8 & 255] ^
          kTables[1][high >> 16 & 255] ^ kTables[0][high >> 24];
  }
  for (; bytes > 0; --bytes, ++at) sum = (sum >> 8) ^ kTables[0][(sum ^ *at) & 255];
  return ~sum;
}

}  // namespace onward
