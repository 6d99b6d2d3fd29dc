// The pool of cache blocks and the table that a sequence keeps of its own. Blocks are taken as a
// sequence grows and go back when it ends; the pool keeps a few returned ones for the next. A table
// can be forked: the two share their blocks, and whoever writes into a shared one first gets a copy
// of its own. Knows nothing of what the numbers in a block mean.
#pragma once

#include <cstdint>
#include <unordered_map>
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
  void share(void* block);  // one more holder, who gives it back as well
  bool shared(void* block) const { return shares_.count(block) != 0; }
  void* copy(void* block);  // a block of the same contents, with one holder
  void give_back(void* block) noexcept;

  // A block counts once, however many share it.
  int64_t blocks_in_use() const { return in_use_; }
  int64_t blocks_reserved() const { return in_use_ + static_cast<int64_t>(free_.size()); }

 private:
  Backend& backend_;
  CacheLayout layout_;
  std::vector<void*> free_;
  std::unordered_map<void*, int64_t> shares_;  // holders beyond the first; no entry: none
  int64_t in_use_ = 0;
};

// The blocks of one sequence, in order of position.
class BlockTable {
 public:
  explicit BlockTable(BlockPool& pool) : pool_(&pool) {}
  ~BlockTable() { clear(); }
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  BlockTable(const BlockTable&) = delete;

  BlockTable fork() const;  // the same blocks, shared

  // Makes positions [first, end) writable: grows to hold them, and copies what is shared of them.
  void make_writable(int64_t first, int64_t end);
  void clear() noexcept;
  const GroupBlocks* blocks() {
    view_ = {blocks_.data(), nullptr};
    return &view_;
  }

 private:
  BlockPool* pool_;
  std::vector<void*> blocks_;
  GroupBlocks view_;
};

}  // namespace onward
