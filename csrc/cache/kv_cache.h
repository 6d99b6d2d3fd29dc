// The keys and values of all sequences of one model: their memory, and the kept prefixes. When the
// memory is spent, kept prefixes are dropped in favour of running sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "cache/block_store.h"
#include "cache/sequence_blocks.h"
#include "cache/prefix_tree.h"

namespace onward {

struct PrefixOptions {
  bool reuse = true;
  int64_t kept_bytes = CacheBudget::kNoLimit;  // of prefixes, at most
};

struct PrefixStats {
  int64_t lookups = 0;        // sequences that began
  int64_t hits = 0;           // lookups that found a prefix
  int64_t hit_tokens = 0;     // tokens that were not computed again
  int64_t lookup_tokens = 0;  // tokens that a lookup could have found
};

class KvCache {
 public:
  KvCache(Backend& backend, const CacheLayout& layout, CacheBudget& budget,
          const PrefixOptions& options)
      : budget_(budget), options_(options), store_(backend, layout, budget), tree_(store_) {}

  const CacheLayout& layout() const { return store_.layout(); }
  BlockStore& store() { return store_; }
  const BlockStore& store() const { return store_; }
  const PrefixTree& tree() const { return tree_; }
  const PrefixStats& prefix_stats() const { return stats_; }
  bool reuses() const { return options_.reuse; }

  SequenceBlocks empty_place() { return SequenceBlocks(store_); }
  // The number of the first `limit` tokens that a sequence would not have to compute.
  int64_t match(const std::vector<int32_t>& tokens, int64_t limit) const;
  // The number of them that the tree still knows, whether or not a sequence can resume there.
  int64_t known(const std::vector<int32_t>& tokens, int64_t limit) const;
  // The bytes of a match that running sequences hold, too.
  int64_t shared_bytes(const std::vector<int32_t>& tokens, int64_t limit) const;
  // The blocks of a sequence that begins with these tokens, with the longest kept prefix of at most
  // `limit` tokens.
  SequenceBlocks begin(const std::vector<int32_t>& tokens, int64_t limit);
  // Keeps the first `count` tokens of a sequence (PrefixTree::remember).
  void remember(const std::vector<int32_t>& tokens, const SequenceBlocks& place, int64_t count);
  // Drops prefixes beyond the limit. Called after sequences gave up blocks, because a shared block
  // is freed only then.
  void shed();
  // SequenceBlocks::prepare; prefixes are dropped to make room.
  bool prepare(SequenceBlocks& place, int64_t end);
  // A block with one holder; prefixes are dropped to make room. Null when there is no memory.
  Block* take(int64_t group, BlockStore::Kind kind);
  void forget_all();
  // NotCached: the budget does not hold a sequence of `tokens`.
  [[noreturn]] void refuse_tokens(int64_t tokens) const;

  // Bytes that are unspent, and bytes of the blocks that only prefixes hold.
  int64_t available_bytes() const { return budget_.left_bytes() + tree_.evictable().bytes; }
  // Blocks that sequences hold, each counted once.
  int64_t blocks_in_use() const { return store_.blocks_in_use() - tree_.evictable().blocks; }

 private:
  CacheBudget& budget_;
  PrefixOptions options_;
  BlockStore store_;
  PrefixTree tree_;
  PrefixStats stats_;
};

}  // namespace onward
