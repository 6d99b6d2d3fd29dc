#include "cache/prefix_snapshot.h"

#include <cstring>
#include <string>

#include "base/error.h"

namespace onward {
namespace {

void require(bool condition, const std::string& name, int64_t found, const std::string& expected) {
  if (condition) return;
  throw InvalidArgument(name + ": found " + std::to_string(found) + ", expected " + expected);
}

// Zeros the tokens of an exact block from `first` on. A longer sequence or an earlier use of the
// memory may have left other values there.
void clear_tokens(const CacheLayout& layout, int64_t first, StoredBlock& exact) {
  constexpr int64_t kTokens = CacheLayout::kBlockTokens;
  const int64_t value = layout.value_bytes();
  const auto zero = [](char* begin, int64_t bytes) {
    std::memset(begin, 0, static_cast<size_t>(bytes));
  };
  const CacheLayout::Group& of = layout.groups[static_cast<size_t>(exact.group)];
  const int64_t row_bytes = layout.value_stride(of) * value;
  char* head = exact.bytes.data();
  char* const end = head + layout.exact_block_bytes(exact.group);
  for (; head < end; head += layout.head_bytes(of)) {
    for (int64_t d = 0; d < of.head_dim; ++d) {  // keys (head_dim, 16)
      zero(head + (d * kTokens + first) * value, (kTokens - first) * value);
    }
    zero(head + layout.exact_keys_bytes(of) + first * row_bytes,  // values (16, stride)
         (kTokens - first) * row_bytes);
  }
}

// A block that fits the layout and that the place does not hold yet.
void check_block(const KvCache& cache, const SequenceBlocks& place, int64_t tokens,
                 const StoredBlock& stored) {
  const CacheLayout& layout = cache.layout();
  const auto kind = stored.coded ? BlockStore::kCoded : BlockStore::kExact;
  require(stored.group >= 0 && stored.group < layout.num_groups(), "block: layer group",
          stored.group, "one of " + std::to_string(layout.num_groups()));
  require(stored.index >= 0 && stored.index < layout.blocks_for(tokens), "block: index",
          stored.index, "below " + std::to_string(layout.blocks_for(tokens)));
  require(!stored.coded || layout.coded(), "block: coded", 1, "an exact one, as all are here");
  const int64_t bytes = cache.store().block_bytes(stored.group, kind);
  require(static_cast<int64_t>(stored.bytes.size()) == bytes, "block: bytes",
          static_cast<int64_t>(stored.bytes.size()), std::to_string(bytes));
  const Block* taken = stored.coded ? place.coded(stored.group, stored.index)
                                    : place.exact(stored.group, stored.index);
  require(taken == nullptr, "block: index", stored.index, "each once");
}

}  // namespace

std::vector<StoredBlock> read_blocks(const KvCache& cache, const SequenceBlocks& place, int64_t tokens,
                                     Backend& backend) {
  const CacheLayout& layout = cache.layout();
  std::vector<StoredBlock> stored;
  const auto store = [&](int64_t group, BlockStore::Kind kind, int64_t index, const Block* block) {
    if (block == nullptr) return;
    const auto bytes = static_cast<size_t>(cache.store().block_bytes(group, kind));
    stored.push_back({group, kind == BlockStore::kCoded, index, std::vector<char>(bytes)});
    backend.download(stored.back().bytes.data(), block->memory, bytes);
    const int64_t held = tokens - index * CacheLayout::kBlockTokens;
    if (kind == BlockStore::kExact && held < CacheLayout::kBlockTokens) {
      clear_tokens(layout, held, stored.back());
    }
  };
  for (int64_t group = 0; group < layout.num_groups(); ++group) {
    for (int64_t index = 0; index < layout.blocks_for(tokens); ++index) {
      store(group, BlockStore::kExact, index, place.exact(group, index));
      store(group, BlockStore::kCoded, index, place.coded(group, index));
    }
  }
  return stored;
}

void restore_prefix(KvCache& cache, const std::vector<int32_t>& token_ids,
                    const std::vector<StoredBlock>& blocks, Backend& backend,
                    const MakeRoom& make_room) {
  const auto tokens = static_cast<int64_t>(token_ids.size());
  SequenceBlocks place = cache.empty_place();
  for (const StoredBlock& stored : blocks) {
    check_block(cache, place, tokens, stored);
    const auto kind = stored.coded ? BlockStore::kCoded : BlockStore::kExact;
    Block* block = cache.take(stored.group, kind);
    while (block == nullptr && make_room()) block = cache.take(stored.group, kind);
    if (block == nullptr) cache.refuse_tokens(tokens);
    backend.upload(block->memory, stored.bytes.data(), stored.bytes.size());
    place.hold(stored.group, kind, stored.index, block);
  }
  place.resume(tokens);
  cache.remember(token_ids, place, tokens);
  if (cache.match(token_ids, tokens) < tokens) {
    throw NotCached("blocks: are not all blocks of a prefix of " + std::to_string(tokens) +
                    " tokens, expected all of them");
  }
  place.clear();
  cache.shed();
  if (cache.match(token_ids, tokens) < tokens) {
    throw NotCached("prefix_cache_bytes: tokens to be kept: found " + std::to_string(tokens) +
                    ", expected no more than it holds");
  }
}

}  // namespace onward
