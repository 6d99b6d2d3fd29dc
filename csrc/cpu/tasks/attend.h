// Cuts the attention of one layer of one step into independent tasks. A task is some tokens of one
// sequence and one kv head. Where the step has too few such tasks for its threads, a task is some
// of the spans of keys.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "cpu/kernels.h"

namespace onward::cpu {

// Reuses its memory from call to call.
class AttendTasks {
 public:
  // For `threads` threads; args, layout and slices must outlive the tasks. std::bad_alloc.
  void plan(const Kernels& kernels, const AttendLayerArgs& args, const CacheLayout& layout,
            const std::vector<SequenceSlice>& slices, int threads);

  int64_t count() const { return static_cast<int64_t>(pieces_.size()) * seen_->num_kv_heads; }
  // In any order, on any thread, each task once. No task waits for another: of the tasks that share
  // rows, the last one to end merges their results.
  void run(int64_t task);

 private:
  // Consecutive tokens of one slice. Its units of work are the spans of keys that it sees or, where
  // it sees codes or sinks, the units of CodedAttendArgs (cpu/coded_attend_args.h).
  struct Tile {
    const SequenceSlice* slice;
    int64_t first_token;
    int64_t tokens;
    bool mixed;         // sees codes or sinks
    bool all;           // sees every key, although there is a window
    int64_t coded_end;  // blocks
    int64_t first_coded_span;
    int64_t end_coded_span;
    int64_t first_span;  // of exact keys
    int64_t end_span;
    int64_t pieces;
    int64_t states;      // where the states of the first kv head begin, for several pieces
    int64_t unfinished;  // the counter of the first kv head
  };
  struct Piece {
    int64_t tile;
    int64_t first_unit;
    int64_t end_unit;
  };

  Tile tile_of(const SequenceSlice& slice, int64_t first_token, int64_t tokens) const;
  int64_t units_of(const Tile& tile) const;
  int64_t state_width(const Tile& tile) const;
  int64_t unit_floats(const Tile& tile) const;  // of one kv head
  AttendArgs exact_args(const Tile& tile, int64_t kv_head) const;
  CodedAttendArgs coded_args(const Tile& tile, int64_t kv_head) const;

  const Kernels* kernels_ = nullptr;
  const AttendLayerArgs* args_ = nullptr;
  const CacheLayout* layout_ = nullptr;
  const CacheLayout::Group* seen_ = nullptr;  // the layer's
  int64_t layer_group_ = 0;
  int64_t group_ = 0;
  std::vector<Tile> tiles_;
  std::vector<Piece> pieces_;
  std::vector<int32_t> unfinished_;  // pieces of a tile and kv head that have not ended
  AlignedBuffer states_;
};

}  // namespace onward::cpu
