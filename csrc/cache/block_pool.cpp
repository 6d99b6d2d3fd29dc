#include "cache/block_pool.h"

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
    block = backend_.allocate(static_cast<size_t>(layout_.block_bytes()));
  } else {
    block = free_.back();
    free_.pop_back();
  }
  ++in_use_;
  return block;
}

void BlockPool::give_back(void* block) noexcept {
  --in_use_;
  const int64_t kept = static_cast<int64_t>(free_.size()) * layout_.block_bytes();
  if (kept + layout_.block_bytes() <= kKeptBytes) {
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

void BlockTable::reserve_tokens(int64_t tokens) {
  const int64_t needed = pool_->layout().blocks_for(tokens);
  blocks_.reserve(static_cast<size_t>(needed));  // so that no taken block can be dropped
  while (static_cast<int64_t>(blocks_.size()) < needed) blocks_.push_back(pool_->take());
}

void BlockTable::clear() noexcept {
  for (void* block : blocks_) pool_->give_back(block);
  blocks_.clear();
}

}  // namespace onward
