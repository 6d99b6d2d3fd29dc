// The pool of cache blocks and the table that a sequence keeps of its own. Blocks are taken as a
// sequence grows and go back when it ends; the pool keeps a few returned ones for the next. Knows
// nothing of what the numbers in a block mean.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace onward {

class BlockPool {
 public:
  BlockPool(Backend& backend, const CacheLayout& layout) : backend_(backend), layout_(layout) {}
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  const CacheLayout& layout() const { return layout_; }
  void* take();  // contents unspecified; std::bad_alloc when the device has no memory left
  void give_back(void* block) noexcept;

  int64_t blocks_in_use() const { return in_use_; }
  int64_t blocks_reserved() const { return in_use_ + static_cast<int64_t>(free_.size()); }

 private:
  Backend& backend_;
  CacheLayout layout_;
  std::vector<void*> free_;
  int64_t in_use_ = 0;
};

// The blocks of one sequence, in order of position.
class BlockTable {
 public:
  explicit BlockTable(BlockPool& pool) : pool_(&pool) {}
  ~BlockTable() { clear(); }
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&&) = delete;
  BlockTable(const BlockTable&) = delete;

  void reserve_tokens(int64_t tokens);  // grows to hold at least so many positions
  void clear() noexcept;
  void* const* blocks() const { return blocks_.data(); }

 private:
  BlockPool* pool_;
  std::vector<void*> blocks_;
};

}  // namespace onward
