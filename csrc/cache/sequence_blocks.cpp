#include "cache/sequence_blocks.h"

#include <algorithm>
#include <utility>

namespace onward {
namespace {

constexpr int64_t kTokens = CacheLayout::kBlockTokens;

size_t at(int64_t index) { return static_cast<size_t>(index); }

}  // namespace

int64_t first_seen_block(const CacheLayout& layout, int64_t group, int64_t position) {
  return layout.groups[at(group)].first_key(position) / kTokens;
}

bool keeps_first_block(const CacheLayout& layout, int64_t group) {
  return layout.groups[at(group)].sink_tokens > 0 || (layout.coded() && layout.exact_first);
}

int64_t sequence_bytes(const CacheLayout& layout, int64_t tokens) {
  if (tokens <= 0) return 0;
  const int64_t blocks = layout.blocks_for(tokens);
  const int64_t coded_end = layout.coded_end(blocks - 1);
  int64_t bytes = 0;
  for (int64_t group = 0; group < layout.num_groups(); ++group) {
    const int64_t seen = first_seen_block(layout, group, tokens);
    // Block 0 counts separately: it may be exact where the others are not.
    int64_t exact =
        std::max<int64_t>(0, blocks - std::max({seen, coded_end, layout.coded_begin()}));
    if (seen < layout.coded_begin() || keeps_first_block(layout, group)) {
      exact += layout.coded_begin();
    }
    const int64_t coded = coded_end - std::max(seen, layout.coded_begin());
    bytes += exact * layout.exact_block_bytes(group);
    if (coded > 0) bytes += coded * layout.coded_block_bytes(group);
  }
  return bytes;
}

int64_t step_bytes(const CacheLayout& layout, int64_t tokens) {
  const int64_t blocks = layout.blocks_for(tokens) + 1;
  int64_t bytes = 0;
  for (int64_t group = 0; group < layout.num_groups(); ++group) {
    if (layout.coded()) bytes += layout.coded_block_bytes(group);
    if (layout.coded() || layout.groups[at(group)].bounded()) {
      bytes += blocks * layout.exact_block_bytes(group);
    }
  }
  return bytes;
}

SequenceBlocks::SequenceBlocks(BlockStore& store)
    : store_(&store),
      tables_(at(store.layout().num_groups())),
      views_(at(store.layout().num_groups())) {}

SequenceBlocks::SequenceBlocks(SequenceBlocks&& other) noexcept
    : store_(other.store_),
      tables_(std::exchange(other.tables_, {})),
      views_(std::exchange(other.views_, {})),
      computed_(std::exchange(other.computed_, 0)) {}

SequenceBlocks& SequenceBlocks::operator=(SequenceBlocks&& other) noexcept {
  std::swap(store_, other.store_);
  tables_.swap(other.tables_);
  views_.swap(other.views_);
  std::swap(computed_, other.computed_);
  return *this;
}

SequenceBlocks SequenceBlocks::fork() const {
  SequenceBlocks twin(*store_);
  for (size_t group = 0; group < tables_.size(); ++group) {
    twin.tables_[group] = tables_[group];
    for (const auto* blocks : {&tables_[group].exact, &tables_[group].coded}) {
      for (Block* block : *blocks) {
        if (block != nullptr) BlockStore::share(block);
      }
    }
  }
  twin.computed_ = computed_;
  twin.update_views();
  return twin;
}

void SequenceBlocks::resize(Table& table, int64_t blocks) const {
  if (static_cast<int64_t>(table.exact.size()) >= blocks) return;
  table.exact.resize(at(blocks));
  table.exact_memory.resize(at(blocks));
  if (!store_->layout().coded()) return;
  table.coded.resize(at(blocks));
  table.coded_memory.resize(at(blocks));
  table.made.resize(at(blocks));
}

void SequenceBlocks::update_views() {
  for (size_t group = 0; group < tables_.size(); ++group) {
    views_[group] = {tables_[group].exact_memory.data(), tables_[group].coded_memory.data()};
  }
}

void SequenceBlocks::drop(int64_t group, BlockStore::Kind kind, int64_t block) noexcept {
  Table& table = tables_[at(group)];
  std::vector<Block*>& blocks = kind == BlockStore::kExact ? table.exact : table.coded;
  if (block >= static_cast<int64_t>(blocks.size()) || blocks[at(block)] == nullptr) return;
  store_->give_back(group, kind, blocks[at(block)]);
  blocks[at(block)] = nullptr;
  (kind == BlockStore::kExact ? table.exact_memory : table.coded_memory)[at(block)] = nullptr;
  if (kind == BlockStore::kCoded) table.made[at(block)] = 0;
}

bool SequenceBlocks::make_writable(int64_t group, int64_t index) {
  Table& table = tables_[at(group)];
  Block*& block = table.exact[at(index)];
  if (block == nullptr) {
    block = store_->take(group, BlockStore::kExact);
  } else if (block->holders > 1) {
    Block* own = store_->copy(group, *block);
    if (own == nullptr) return false;
    store_->give_back(group, BlockStore::kExact, block);
    block = own;
  }
  if (block == nullptr) return false;
  table.exact_memory[at(index)] = block->memory;
  return true;
}

int64_t SequenceBlocks::first_coded(int64_t group) const {
  const CacheLayout& layout = store_->layout();
  return std::max({layout.coded_begin(), first_seen_block(layout, group, computed_),
                   tables_[at(group)].unmade});
}

bool SequenceBlocks::prepare(int64_t end) {
  const CacheLayout& layout = store_->layout();
  const int64_t last = (end - 1) / kTokens;
  for (int64_t group = 0; group < layout.num_groups(); ++group) {
    Table& table = tables_[at(group)];
    resize(table, last + 1);
    for (int64_t block = computed_ / kTokens; block <= last; ++block) {
      if (!make_writable(group, block)) return false;
    }
    table.planned = layout.coded_end(last);
    for (int64_t block = first_coded(group); block < table.planned; ++block) {
      if (table.coded[at(block)] != nullptr) continue;
      table.coded[at(block)] = store_->take(group, BlockStore::kCoded);
      if (table.coded[at(block)] == nullptr) return false;
      table.coded_memory[at(block)] = table.coded[at(block)]->memory;
    }
  }
  update_views();
  return true;
}

void SequenceBlocks::append_encodings(std::vector<BlockEncoding>& encodings) const {
  const CacheLayout& layout = store_->layout();
  if (!layout.coded()) return;
  for (int64_t group = 0; group < layout.num_groups(); ++group) {
    const Table& table = tables_[at(group)];
    for (int64_t block = first_coded(group); block < table.planned; ++block) {
      if (table.made[at(block)]) continue;
      encodings.push_back({group, table.exact_memory[at(block)], table.coded_memory[at(block)],
                           layout.exact_first ? table.exact_memory[0] : nullptr});
    }
  }
}

bool SequenceBlocks::gives_back() const {
  for (int64_t group = 0; group < store_->layout().num_groups(); ++group) {
    if (store_->layout().coded() && first_coded(group) < tables_[at(group)].planned) return true;
  }
  return false;
}

void SequenceBlocks::advance(int64_t end) {
  if (store_->layout().coded()) {
    for (int64_t group = 0; group < store_->layout().num_groups(); ++group) {
      Table& table = tables_[at(group)];
      for (int64_t block = first_coded(group); block < table.planned; ++block) {
        table.made[at(block)] = 1;
      }
      table.unmade = std::max(table.unmade, table.planned);
    }
  }
  computed_ = end;
}

void SequenceBlocks::retreat(int64_t computed) {
  if (computed >= computed_) return;
  computed_ = computed;
  for (int64_t group = 0; group < store_->layout().num_groups(); ++group) {
    Table& table = tables_[at(group)];
    // Codes of blocks that are to be written again.
    const int64_t whole = computed / kTokens;
    for (int64_t block = whole; block < table.unmade; ++block) {
      drop(group, BlockStore::kCoded, block);
    }
    table.unmade = std::min(table.unmade, whole);
    table.planned = std::min(table.planned, whole);
  }
}

void SequenceBlocks::settle() {
  const CacheLayout& layout = store_->layout();
  for (int64_t group = 0; group < layout.num_groups(); ++group) {
    Table& table = tables_[at(group)];
    const int64_t held = static_cast<int64_t>(table.exact.size());
    const int64_t seen = std::min(first_seen_block(layout, group, computed_), held);
    for (int64_t block = table.unseen; block < seen; ++block) {
      drop(group, BlockStore::kCoded, block);
      if (block > 0 || !keeps_first_block(layout, group)) drop(group, BlockStore::kExact, block);
    }
    table.unseen = std::max(table.unseen, seen);
    const int64_t begin = std::max(table.exact_from, layout.coded_begin());
    const int64_t end = std::min(layout.coded_end(computed_ / kTokens), table.unmade);
    for (int64_t block = begin; block < end; ++block) {
      if (table.made[at(block)]) drop(group, BlockStore::kExact, block);
    }
    table.exact_from = std::max(table.exact_from, end);
  }
}

void SequenceBlocks::clear() noexcept {
  for (size_t group = 0; group < tables_.size(); ++group) {
    Table& table = tables_[group];
    for (size_t block = 0; block < table.exact.size(); ++block) {
      drop(static_cast<int64_t>(group), BlockStore::kExact, static_cast<int64_t>(block));
      drop(static_cast<int64_t>(group), BlockStore::kCoded, static_cast<int64_t>(block));
    }
    table = Table();
    views_[group] = {};
  }
  computed_ = 0;
}

Block* SequenceBlocks::exact(int64_t group, int64_t block) const {
  const Table& table = tables_[at(group)];
  return at(block) < table.exact.size() ? table.exact[at(block)] : nullptr;
}

Block* SequenceBlocks::coded(int64_t group, int64_t block) const {
  const Table& table = tables_[at(group)];
  return at(block) < table.coded.size() && table.made[at(block)] ? table.coded[at(block)] : nullptr;
}

void SequenceBlocks::hold(int64_t group, BlockStore::Kind kind, int64_t index, Block* block) {
  Table& table = tables_[at(group)];
  resize(table, index + 1);
  if (kind == BlockStore::kExact) {
    table.exact[at(index)] = block;
    table.exact_memory[at(index)] = block->memory;
  } else {
    table.coded[at(index)] = block;
    table.coded_memory[at(index)] = block->memory;
    table.made[at(index)] = 1;
  }
}

int64_t SequenceBlocks::bytes() const {
  int64_t bytes = 0;
  for (size_t group = 0; group < tables_.size(); ++group) {
    for (const BlockStore::Kind kind : {BlockStore::kExact, BlockStore::kCoded}) {
      const auto& blocks = kind == BlockStore::kExact ? tables_[group].exact : tables_[group].coded;
      const auto held = static_cast<int64_t>(std::count_if(
          blocks.begin(), blocks.end(), [](Block* block) { return block != nullptr; }));
      bytes += held * store_->block_bytes(static_cast<int64_t>(group), kind);
    }
  }
  return bytes;
}

}  // namespace onward
