// The blocks of one sequence: for each layer group a table of exact and coded blocks, and the number
// of computed positions. Takes blocks as the sequence grows, plans which blocks become codes, gives
// back blocks that no later token sees, and copies a shared block before it is written to.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "cache/block_store.h"

namespace onward {

class SequenceBlocks {
 public:
  explicit SequenceBlocks(BlockStore& store);
  ~SequenceBlocks() { clear(); }
  SequenceBlocks(SequenceBlocks&& other) noexcept;
  SequenceBlocks& operator=(SequenceBlocks&& other) noexcept;
  SequenceBlocks(const SequenceBlocks&) = delete;

  SequenceBlocks fork() const;  // the same blocks, shared

  int64_t computed() const { return computed_; }  // positions

  // Before a step over positions [computed, end): makes their blocks writable, and takes blocks for
  // the codes that their tokens see. False when the budget is spent; the blocks taken so far stay,
  // and a second call continues. std::bad_alloc when the device has no memory.
  bool prepare(int64_t end);
  // The codes that the step makes, and the codes of a step before it that was given up.
  void append_encodings(std::vector<BlockEncoding>& encodings) const;
  // Whether exact blocks become codes in the prepared step and are given back after it.
  bool gives_back() const;
  const GroupBlocks* blocks() const { return views_.data(); }  // for the step, by group
  // After the step: positions before `end` are computed, and the codes are made.
  void advance(int64_t end);
  // Drops the positions from `computed` on, which wrong guesses wrote. Not below the last settle.
  void retreat(int64_t computed);
  // Gives back the blocks that no later token sees, and the exact ones of which it sees the codes.
  void settle();
  void clear() noexcept;  // all blocks; nothing is computed

  // For sharing blocks between sequences. Null where there is no such block.
  Block* exact(int64_t group, int64_t block) const;
  Block* coded(int64_t group, int64_t block) const;  // whose codes are made
  // Fills an empty object: `hold` each block that a token at position `computed` sees (the caller's
  // share of the block goes over to it), then resume.
  void hold(int64_t group, BlockStore::Kind kind, int64_t index, Block* block);
  void resume(int64_t computed) { computed_ = computed; }

  int64_t bytes() const;  // of its blocks, shared ones included

 private:
  struct Table {
    std::vector<Block*> exact, coded;               // by block of positions
    std::vector<void*> exact_memory, coded_memory;  // the same for the backend
    std::vector<uint8_t> made;                      // the codes are written
    int64_t unmade = 0;                             // no block before it waits for codes
    int64_t unseen = 0;      // blocks before it are given back, except the first
    int64_t exact_from = 0;  // exact blocks before it are given back, except the first
    int64_t planned = 0;     // codes of blocks before it are made by the present step
  };

  void resize(Table& table, int64_t blocks) const;
  void drop(int64_t group, BlockStore::Kind kind, int64_t block) noexcept;
  bool make_writable(int64_t group, int64_t block);
  int64_t first_coded(int64_t group) const;
  void update_views();

  BlockStore* store_;
  std::vector<Table> tables_;  // by group
  std::vector<GroupBlocks> views_;
  int64_t computed_ = 0;
};

// The first block of a group that a token at this position sees, apart from the sinks.
int64_t first_seen_block(const CacheLayout& layout, int64_t group, int64_t position);
// Whether block 0 stays although it has left the window: for its sinks, or because codes refer to it.
bool keeps_first_block(const CacheLayout& layout, int64_t group);

// Bytes of the blocks of a sequence of `tokens` computed tokens.
int64_t sequence_bytes(const CacheLayout& layout, int64_t tokens);
// The most bytes that a step over `tokens` of a sequence takes in addition while it runs.
int64_t step_bytes(const CacheLayout& layout, int64_t tokens);

}  // namespace onward
