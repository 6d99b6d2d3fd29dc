// The memory of a cache: blocks of a few fixed sizes, each with a count of its holders, under one
// budget of bytes. A block is freed when its last holder gives it up. The memory of all but a few
// free blocks goes back to the device, so a cache takes little more than the blocks in use.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace onward {

// A limit on the bytes of the blocks of several stores together.
struct CacheBudget {
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max() / 2;

  int64_t limit_bytes = kNoLimit;
  int64_t used_bytes = 0;  // of blocks with a holder, each counted once

  int64_t left_bytes() const { return limit_bytes - used_bytes; }
};

struct Slab;

struct Block {
  void* memory = nullptr;  // device
  int64_t holders = 0;
  int64_t kept = 0;  // holders that give the block up when memory is short (PrefixTree)
  Slab* slab = nullptr;
  bool vacant = true;  // takes no memory: not written to since it was reserved or vacated

  bool only_kept() const { return holders == kept; }
};

// Blocks of one size, cut from slabs of about a MiB so that few pages are wasted.
class BlockPool {
 public:
  BlockPool(Backend& backend, int64_t block_bytes);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  int64_t block_bytes() const { return block_bytes_; }
  int64_t in_use() const { return in_use_; }
  int64_t reserved() const { return reserved_; }  // blocks in use, and free ones
  bool has_free() const { return reserved_ > in_use_; }

  // Reserves at least 1 and at most `most` more blocks; std::bad_alloc.
  void grow(int64_t most);
  Block* take();  // a free one, with one holder; contents unspecified
  void give_back(Block* block) noexcept;
  // Returns slabs without a block in use to the device until at most `kept_bytes` of them are left.
  void trim(int64_t kept_bytes) noexcept;

 private:
  Backend& backend_;
  int64_t block_bytes_;
  int64_t in_use_ = 0;
  int64_t reserved_ = 0;
  int64_t spare_ = 0;  // free blocks that take memory
  std::vector<std::unique_ptr<Slab>> slabs_;
};

// The pools of one cache layout: for each layer group exact blocks and coded ones.
class BlockStore {
 public:
  enum Kind : int { kExact = 0, kCoded = 1 };

  BlockStore(Backend& backend, const CacheLayout& layout, CacheBudget& budget);

  const CacheLayout& layout() const { return layout_; }
  int64_t block_bytes(int64_t group, Kind kind) const { return pool(group, kind).block_bytes(); }

  // A block with one holder, contents unspecified; null when the budget does not hold it.
  // std::bad_alloc when the device has no memory left.
  Block* take(int64_t group, Kind kind);
  Block* copy(int64_t group, const Block& exact);  // the same contents; null like `take`
  static Block* share(Block* block) {              // one more holder
    ++block->holders;
    return block;
  }
  void give_back(int64_t group, Kind kind, Block* block) noexcept;

  int64_t blocks_in_use() const;
  int64_t bytes_reserved() const;
  // Returns memory that no block uses to the device.
  void trim() noexcept;

 private:
  BlockPool& pool(int64_t group, Kind kind) const {
    return *pools_[static_cast<size_t>(2 * group + kind)];
  }

  Backend& backend_;
  CacheLayout layout_;
  CacheBudget& budget_;
  std::vector<std::unique_ptr<BlockPool>> pools_;  // exact and coded of each group
};

}  // namespace onward
