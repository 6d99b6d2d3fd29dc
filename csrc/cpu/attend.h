// Cuts the attention of one layer of one step into independent tasks: a task is some tokens of one
// sequence, one kv head and, where the step has too few of those for its threads, some of the spans
// of keys. Knows nothing of threads but their number, nor of what a kernel does.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "cpu/kernels.h"

namespace onward::cpu {

// Keeps its memory from call to call.
class AttendTasks {
 public:
  // For `threads` threads; args, layout and slices have to outlive the tasks. std::bad_alloc.
  void plan(const Kernels& kernels, const AttendLayerArgs& args, const CacheLayout& layout,
            const std::vector<SequenceSlice>& slices, int threads);

  int64_t count() const { return static_cast<int64_t>(pieces_.size()) * layout_->num_kv_heads; }
  // Any order, any thread, each once. No task waits for another: of the tasks that share rows, the
  // one that ends last merges what they all have left.
  void run(int64_t task);

 private:
  // Tokens of one slice that go together.
  struct Tile {
    const SequenceSlice* slice;
    int64_t first_token;
    int64_t tokens;
    int64_t first_span;
    int64_t end_span;
    int64_t pieces;
    int64_t states;      // where those of the first kv head begin, if there are several pieces
    int64_t unfinished;  // the counter of the first kv head
  };
  struct Piece {
    int64_t tile;
    int64_t first_span;
    int64_t end_span;
  };

  int64_t states_floats(const Tile& tile) const;  // of one kv head

  void (*attend_)(const AttendArgs&) = nullptr;
  void (*merge_spans_)(const AttendArgs&) = nullptr;
  const AttendLayerArgs* args_ = nullptr;
  const CacheLayout* layout_ = nullptr;
  int64_t group_ = 0;
  std::vector<Tile> tiles_;
  std::vector<Piece> pieces_;
  std::vector<int32_t> unfinished_;  // pieces of a tile and kv head that have not ended
  AlignedBuffer states_;
};

}  // namespace onward::cpu
