// CRC-32 of zlib, gzip and PNG (polynomial 0x04C11DB7, reflected), the same as Python's zlib.crc32.
// It finds damage, not malice.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onward {

// The checksum of bytes whose checksum is `before` (0: none) followed by these `bytes` bytes.
uint32_t crc32(const void* data, size_t bytes, uint32_t before = 0);

}  // namespace onward
