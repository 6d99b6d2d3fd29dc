#include "cache/block_pool.h"

#include <algorithm>
#include <new>
#include <utility>

namespace onward {
namespace {
// Returned blocks that are kept for the next sequence; the rest goes back to the device.
constexpr int64_t kKeptBytes = int64_t{64} << 20;
}  // namespace

BlockPool::~BlockPool() {
  for (void* block : free_) backend_.release(block);
}

void* BlockPool::take() {
  void* block;
  if (free_.empty()) {
    block = backend_.allocate(static_cast<size_t>(layout_.exact_block_bytes(0)));
  } else {
    block = free_.back();
    free_.pop_back();
  }
  ++in_use_;
  return block;
}

void BlockPool::share(void* block) { ++shares_[block]; }

void* BlockPool::copy(void* block) {
  void* fresh = take();
  backend_.copy(fresh, block, static_cast<size_t>(layout_.exact_block_bytes(0)));
  return fresh;
}

void BlockPool::give_back(void* block) noexcept {
  const auto others = shares_.find(block);
  if (others != shares_.end()) {
    if (--others->second == 0) shares_.erase(others);
    return;
  }
  --in_use_;
  const int64_t kept = static_cast<int64_t>(free_.size()) * layout_.exact_block_bytes(0);
  if (kept + layout_.exact_block_bytes(0) <= kKeptBytes) {
    try {
      return free_.push_back(block);
    } catch (const std::bad_alloc&) {
      // No memory to remember the block by: let the device have it.
    }
  }
  backend_.release(block);
}

BlockTable::BlockTable(BlockTable&& other) noexcept
    : pool_(other.pool_), blocks_(std::exchange(other.blocks_, {})) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  std::swap(pool_, other.pool_);
  blocks_.swap(other.blocks_);
  return *this;
}

BlockTable BlockTable::fork() const {
  BlockTable twin(*pool_);
  twin.blocks_.reserve(blocks_.size());  // so that no shared block can be dropped
  for (void* block : blocks_) {
    pool_->share(block);
    twin.blocks_.push_back(block);
  }
  return twin;
}

void BlockTable::make_writable(int64_t first, int64_t end) {
  const int64_t held = static_cast<int64_t>(blocks_.size());
  const int64_t needed = pool_->layout().blocks_for(end);
  for (int64_t b = first / CacheLayout::kBlockTokens; b < std::min(held, needed); ++b) {
    void*& block = blocks_[static_cast<size_t>(b)];
    if (!pool_->shared(block)) continue;
    void* own = pool_->copy(block);
    pool_->give_back(block);
    block = own;
  }
  blocks_.reserve(static_cast<size_t>(std::max(needed, held)));  // no taken block can be dropped
  while (static_cast<int64_t>(blocks_.size()) < needed) blocks_.push_back(pool_->take());
}

void BlockTable::clear() noexcept {
  for (void* block : blocks_) pool_->give_back(block);
  blocks_.clear();
}

}  // namespace onward
