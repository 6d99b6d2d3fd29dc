#include "cache/block_store.h"

#include <algorithm>

namespace onward {
namespace {

constexpr int64_t kSlabBytes = int64_t{1} << 20;
// Bytes of address space of a pool's free slabs that are kept for the next sequence.
constexpr int64_t kKeptBytes = int64_t{32} << 20;
// For each kUsedForEachSpare blocks in use, one free block keeps its memory. That saves the next sequence page
// faults, some microseconds a block, and costs a hundredth of the cache.
constexpr int64_t kUsedForEachSpare = 100;

}  // namespace

struct Slab {
  void* memory = nullptr;
  size_t bytes = 0;
  std::vector<Block> blocks;
  std::vector<Block*> free;

  bool unused() const { return free.size() == blocks.size(); }
};

BlockPool::BlockPool(Backend& backend, int64_t block_bytes)
    : backend_(backend), block_bytes_(block_bytes) {}

BlockPool::~BlockPool() {
  for (const auto& slab : slabs_) backend_.unreserve(slab->memory, slab->bytes);
}

void BlockPool::grow(int64_t most) {
  // A slab is an eighth of all slabs before it, so that small caches stay small.
  const int64_t count = std::clamp<int64_t>(
      reserved_ / 8, 1, std::max<int64_t>(1, std::min(kSlabBytes / block_bytes_, most)));
  auto slab = std::make_unique<Slab>();
  slab->blocks.resize(static_cast<size_t>(count));
  slab->free.reserve(slab->blocks.size());
  slabs_.reserve(slabs_.size() + 1);
  slab->bytes = static_cast<size_t>(count * block_bytes_);
  slab->memory = backend_.reserve(slab->bytes);
  for (int64_t i = count; i-- > 0;) {
    Block& block = slab->blocks[static_cast<size_t>(i)];
    block.memory = static_cast<char*>(slab->memory) + i * block_bytes_;
    block.slab = slab.get();
    slab->free.push_back(&block);
  }
  reserved_ += count;
  slabs_.push_back(std::move(slab));
}

Block* BlockPool::take() {
  // From the oldest slab with a free block, so that the youngest slabs become free as a whole.
  for (const auto& slab : slabs_) {
    if (slab->free.empty()) continue;
    Block* block = slab->free.back();
    slab->free.pop_back();
    if (!block->vacant) --spare_;
    block->vacant = false;
    block->holders = 1;
    ++in_use_;
    return block;
  }
  return nullptr;
}

void BlockPool::give_back(Block* block) noexcept {
  --in_use_;
  block->vacant = spare_ >= in_use_ / kUsedForEachSpare;
  if (block->vacant) {
    backend_.vacate(block->memory, static_cast<size_t>(block_bytes_));
  } else {
    ++spare_;
  }
  block->slab->free.push_back(block);  // within the reserved capacity: does not throw
  if (block->slab->unused()) trim(kKeptBytes);
}

void BlockPool::trim(int64_t kept_bytes) noexcept {
  for (size_t i = slabs_.size(); i-- > 0;) {
    if ((reserved_ - in_use_) * block_bytes_ <= kept_bytes) return;
    if (!slabs_[i]->unused()) continue;
    for (const Block& block : slabs_[i]->blocks) spare_ -= block.vacant ? 0 : 1;
    reserved_ -= static_cast<int64_t>(slabs_[i]->blocks.size());
    backend_.unreserve(slabs_[i]->memory, slabs_[i]->bytes);
    slabs_.erase(slabs_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

BlockStore::BlockStore(Backend& backend, const CacheLayout& layout, CacheBudget& budget)
    : backend_(backend), layout_(layout), budget_(budget) {
  for (int64_t group = 0; group < layout.num_groups(); ++group) {
    const int64_t coded = layout.coded() ? layout.coded_block_bytes(group) : 0;
    for (const int64_t bytes : {layout.exact_block_bytes(group), coded}) {
      pools_.push_back(std::make_unique<BlockPool>(backend, bytes));
    }
  }
}

Block* BlockStore::take(int64_t group, Kind kind) {
  BlockPool& from = pool(group, kind);
  const int64_t bytes = from.block_bytes();
  if (budget_.left_bytes() < bytes) return nullptr;
  if (!from.has_free()) {
    int64_t room = budget_.limit_bytes - bytes_reserved();
    if (room < bytes) {
      trim();
      room = budget_.limit_bytes - bytes_reserved();
    }
    from.grow(std::max<int64_t>(1, room / bytes));
  }
  budget_.used_bytes += bytes;
  return from.take();
}

Block* BlockStore::copy(int64_t group, const Block& exact) {
  Block* fresh = take(group, kExact);
  if (fresh != nullptr) {
    backend_.copy(fresh->memory, exact.memory, static_cast<size_t>(block_bytes(group, kExact)));
  }
  return fresh;
}

void BlockStore::give_back(int64_t group, Kind kind, Block* block) noexcept {
  if (--block->holders > 0) return;
  budget_.used_bytes -= block_bytes(group, kind);
  pool(group, kind).give_back(block);
}

int64_t BlockStore::blocks_in_use() const {
  int64_t blocks = 0;
  for (const auto& pool : pools_) blocks += pool->in_use();
  return blocks;
}

int64_t BlockStore::bytes_reserved() const {
  int64_t bytes = 0;
  for (const auto& pool : pools_) bytes += pool->reserved() * pool->block_bytes();
  return bytes;
}

void BlockStore::trim() noexcept {
  for (const auto& pool : pools_) pool->trim(0);
}

}  // namespace onward
