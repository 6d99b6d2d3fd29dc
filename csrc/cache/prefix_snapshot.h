// A prefix as bytes: the blocks of the cache that a token after it sees, for a file, and back.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cache/kv_cache.h"

namespace onward {

struct StoredBlock {
  int64_t group = 0;
  bool coded = false;
  int64_t index = 0;  // among the sequence's blocks
  std::vector<char> bytes;
};

// The blocks of a place whose first `tokens` positions are computed. Bytes of an exact block beyond
// them are zero, so that the same prefix always gives the same bytes.
std::vector<StoredBlock> read_blocks(const KvCache& cache, const SequenceBlocks& place, int64_t tokens,
                                     Backend& backend);

// Gives up memory that others hold; false where there is none left to give up.
using MakeRoom = std::function<bool()>;

// Keeps a prefix of the cache whose blocks `read_blocks` gave. InvalidArgument where the
// blocks are not all blocks of this prefix, and where the cache has no room for them.
void restore_prefix(KvCache& cache, const std::vector<int32_t>& token_ids,
                    const std::vector<StoredBlock>& blocks, Backend& backend,
                    const MakeRoom& make_room);

}  // namespace onward
