// The tiles of attention over exact keys and values, as the float part of an instruction set offers
// them to its byte part (attention over codes). Plain types only (cpu/kernels.h).
#pragma once

#include <cstdint>

#include "cpu/kernels.h"

namespace onward::cpu {

constexpr int kTileRows = 6;  // rows of a register tile: 6 rows x 4 vectors fill 24 of 32 registers
constexpr int64_t kTileBlocks = 4;
constexpr int64_t kTileKeys = kTileBlocks * kBlockTokens;  // 64, aligned to absolute positions

// One query head of one token.
struct AttendRow {
  const float* q;     // (head_dim)
  int64_t first_key;  // the keys that it sees
  int64_t last_key;
  int64_t position;  // from which an ALiBi slope counts
  int64_t head;      // of the group
};

// The part of a key tile that a register tile of rows sees.
struct KeyRange {
  int64_t tile_block;  // first block of the tile
  int64_t first_block;
  int64_t last_block;
  int64_t last_key;
  bool whole;  // every row sees every key of these blocks
};

using Probabilities = float[kTileRows][kTileKeys];

// The functions for one dtype of the cache. score and add have one entry for each number of rows,
// 1 to kTileRows.
struct ExactTiles {
  int64_t element_bytes;
  // Scores of the rows against a tile's keys; hidden keys score -infinity.
  void (*score[kTileRows])(const AttendArgs&, const AttendRow* rows, const KeyRange&,
                           Probabilities&);
  // out = out * rescale + p * values. out: of the first row, one state apart from the next row's.
  void (*add[kTileRows])(const AttendArgs&, const AttendRow* rows, const KeyRange&,
                         const float* rescale, const Probabilities&, float* out);
  // The states (count, state) of some rows in one span, from nothing. A row that sees no key of the
  // span keeps an empty state.
  void (*span)(const AttendArgs&, const AttendRow* rows, int64_t count, int64_t span,
               float* states);
};

}  // namespace onward::cpu
