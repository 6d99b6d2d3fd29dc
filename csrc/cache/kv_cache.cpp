#include "cache/kv_cache.h"

#include <string>

#include "base/error.h"

namespace onward {

int64_t KvCache::match(const std::vector<int32_t>& tokens, int64_t limit) const {
  return options_.reuse ? tree_.match(tokens, limit) : 0;
}

int64_t KvCache::known(const std::vector<int32_t>& tokens, int64_t limit) const {
  return options_.reuse ? tree_.known(tokens, limit) : 0;
}

int64_t KvCache::shared_bytes(const std::vector<int32_t>& tokens, int64_t limit) const {
  return options_.reuse ? tree_.shared_bytes(tokens, limit) : 0;
}

SequenceBlocks KvCache::begin(const std::vector<int32_t>& tokens, int64_t limit) {
  if (!options_.reuse) return SequenceBlocks(store_);
  SequenceBlocks place = tree_.reuse(tokens, limit);
  ++stats_.lookups;
  stats_.hits += place.computed() > 0;
  stats_.hit_tokens += place.computed();
  stats_.lookup_tokens += limit;
  return place;
}

void KvCache::remember(const std::vector<int32_t>& tokens, const SequenceBlocks& place, int64_t count) {
  if (!options_.reuse || count <= 0) return;
  tree_.remember(tokens, place, count);
}

void KvCache::shed() {
  while (tree_.bytes() > options_.kept_bytes && tree_.evict()) {
  }
}

bool KvCache::prepare(SequenceBlocks& place, int64_t end) {
  while (!place.prepare(end)) {
    if (!tree_.evict()) return false;
  }
  return true;
}

Block* KvCache::take(int64_t group, BlockStore::Kind kind) {
  Block* block = store_.take(group, kind);
  while (block == nullptr && tree_.evict()) block = store_.take(group, kind);
  return block;
}

void KvCache::forget_all() {
  tree_.clear();
  store_.trim();
}

void KvCache::refuse_tokens(int64_t tokens) const {
  throw NotCached("kv_cache_bytes: " + std::to_string(tokens) + " tokens take " +
                        std::to_string(sequence_bytes(layout(), tokens)) +
                        " bytes, expected at most " + std::to_string(budget_.limit_bytes) +
                        " bytes");
}

}  // namespace onward
