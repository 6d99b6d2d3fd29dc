// The keys and values of all sequences of one model: their memory, and the prefixes that are kept.
// When the memory is spent, what is only kept gives way to what is needed. Knows sequences as
// places and tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "cache/block_store.h"
#include "cache/cache_place.h"
#include "cache/prefix_tree.h"

namespace onward {

struct PrefixOptions {
  bool reuse = true;
  int64_t kept_bytes = CacheBudget::kNoLimit;  // of prefixes, at most
};

struct PrefixStats {
  int64_t lookups = 0;        // sequences that began
  int64_t hits = 0;           // of these, those that began with something
  int64_t hit_tokens = 0;     // that were not computed again
  int64_t lookup_tokens = 0;  // of the sequences' beginnings, that could have been hit
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

  CachePlace empty_place() { return CachePlace(store_); }
  // How many of the first `limit` tokens a sequence would not have to compute.
  int64_t match(const std::vector<int32_t>& tokens, int64_t limit) const;
  // How many of them were ever kept, and partly still are, whether or not one can go on there.
  int64_t known(const std::vector<int32_t>& tokens, int64_t limit) const;
  // Of what would be matched, the bytes that some sequence holds anyway.
  int64_t shared_bytes(const std::vector<int32_t>& tokens, int64_t limit) const;
  // A place for a sequence that begins with these tokens: computed as far as possible, up to
  // `limit`.
  CachePlace begin(const std::vector<int32_t>& tokens, int64_t limit);
  // Keeps the first `count` tokens of a place (PrefixTree::remember).
  void remember(const std::vector<int32_t>& tokens, const CachePlace& place, int64_t count);
  // Lets go of prefixes beyond what may be kept: when sequences have let go of their blocks, which
  // could not be freed before.
  void shed();
  // CachePlace::prepare; prefixes make room for it.
  bool prepare(CachePlace& place, int64_t end);
  // A block with one holder; prefixes make room for it. Null when there is none.
  Block* take(int64_t group, BlockStore::Kind kind);
  void forget_all();
  // InvalidArgument: the budget does not hold a sequence of `tokens`.
  [[noreturn]] void refuse_tokens(int64_t tokens) const;

  // What could be had: unspent, and what is only kept.
  int64_t available_bytes() const { return budget_.left_bytes() + tree_.evictable().bytes; }
  // Blocks that sequences hold, each once.
  int64_t blocks_in_use() const { return store_.blocks_in_use() - tree_.evictable().blocks; }

 private:
  CacheBudget& budget_;
  PrefixOptions options_;
  BlockStore store_;
  PrefixTree tree_;
  PrefixStats stats_;
};

}  // namespace onward
