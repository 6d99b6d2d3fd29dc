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

// Frees memory that other sequences hold. Returns false if none is left to free.
using MakeRoom = std::function<bool()>;

// Keeps a prefix in the cache, from the blocks that `read_blocks` returned. InvalidArgument: a
// block does not fit the layout of the cache. NotCached: blocks are absent, or the cache keeps no
// prefixes or has no room for this one.
void restore_prefix(KvCache& cache, const std::vector<int32_t>& token_ids,
                    const std::vector<StoredBlock>& blocks, Backend& backend,
                    const MakeRoom& make_room);

}  // namespace onward
