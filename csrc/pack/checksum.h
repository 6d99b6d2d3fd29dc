// CRC-32 as zlib, gzip and PNG have it (polynomial 0x04C11DB7, reflected): what Python's zlib.crc32
// gives. It finds damage, not malice. Knows nothing of what it sums.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onward {

// Of `bytes` more bytes after those whose checksum is `before` (0: there were none).
uint32_t crc32(const void* data, size_t bytes, uint32_t before = 0);

}  // namespace onward
