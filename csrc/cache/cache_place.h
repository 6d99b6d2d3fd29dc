// Where the keys and values of one sequence lie: for each layer group a table of blocks, exact ones
// and coded ones, and how many positions are computed. Takes blocks as the sequence grows, plans
// which go over to codes, gives back what no later token sees, and copies a shared block before it
// is written to. Knows positions; neither tokens nor what is computed.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "cache/block_store.h"

namespace onward {

class CachePlace {
 public:
  explicit CachePlace(BlockStore& store);
  ~CachePlace() { clear(); }
  CachePlace(CachePlace&& other) noexcept;
  CachePlace& operator=(CachePlace&& other) noexcept;
  CachePlace(const CachePlace&) = delete;

  CachePlace fork() const;  // the same blocks, shared

  int64_t computed() const { return computed_; }  // positions

  // Before a step over positions [computed, end): makes them writable, and finds room for the codes
  // that their tokens see. False when the budget does not hold it: what was taken stays, a second
  // call goes on. std::bad_alloc when the device has no memory.
  bool prepare(int64_t end);
  // The step's codes to be made; again those of a step that was given up.
  void append_encodings(std::vector<BlockEncoding>& encodings) const;
  // Whether the prepared step turns exact blocks into codes, which are given back after it.
  bool gives_back() const;
  const GroupBlocks* blocks() const { return views_.data(); }  // for the step, by group
  // After the step: positions before `end` are computed, and the codes made.
  void advance(int64_t end);
  // Only so many positions stand: guesses that were wrong. At least those of the last settle.
  void retreat(int64_t computed);
  // Gives back what no token from here on sees, or not exactly.
  void settle();
  void clear() noexcept;  // all blocks; nothing is computed

  // For whoever shares blocks between places. Null: there is none.
  Block* exact(int64_t group, int64_t block) const;
  Block* coded(int64_t group, int64_t block) const;  // whose codes are made
  // Begins an empty place: `hold` the blocks that a token at position `computed` sees (the caller's
  // holder becomes the place's), then resume.
  void hold(int64_t group, BlockStore::Kind kind, int64_t index, Block* block);
  void resume(int64_t computed) { computed_ = computed; }

  int64_t bytes() const;  // of its blocks, shared ones included

 private:
  struct Table {
    std::vector<Block*> exact, coded;               // by block of positions
    std::vector<void*> exact_memory, coded_memory;  // the same for the backend
    std::vector<uint8_t> made;                      // codes are there, not only their block
    int64_t unmade = 0;                             // no block before it waits for codes
    int64_t unseen = 0;      // blocks before it are given back, but the first
    int64_t exact_from = 0;  // exact blocks before it are given back, but the first
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

// The first block that a token at this position sees of a group, its sinks aside.
int64_t first_seen_block(const CacheLayout& layout, int64_t group, int64_t position);
// Whether block 0 stays although it has left the window: for its sinks, or as what codes refer to.
bool keeps_first_block(const CacheLayout& layout, int64_t group);

// Bytes of the blocks of a sequence of so many computed tokens.
int64_t sequence_bytes(const CacheLayout& layout, int64_t tokens);
// What a step over `tokens` of a sequence takes for its duration besides, at most.
int64_t step_bytes(const CacheLayout& layout, int64_t tokens);

}  // namespace onward
