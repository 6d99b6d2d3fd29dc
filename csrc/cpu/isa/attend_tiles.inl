// Causal attention over cache blocks with an online softmax (Milakov & Gimelshein 2018), for an
// instruction set that is described by sixteen-float Lanes. Included inside the anonymous namespace
// of each such file, after linear_tiles.inl and row_kernels.inl; knows nothing of layers, sequences
// or threads.
//
// A row is one query head of one token. Rows are taken in chunks whose state fits the first-level
// cache; a chunk walks the key tiles, and in each tile its rows go in register tiles, so that a
// vector of keys or values is loaded once for up to six rows.

constexpr int64_t kTileBlocks = 4;
constexpr int64_t kTileKeys = kTileBlocks * kBlockTokens;  // 64, aligned to absolute positions
constexpr int64_t kChunkRows = 48;
constexpr int64_t kChunkFloats = 6144;  // 48 rows of 128, 24 of 256: sets the largest head_dim

// With more than four rows arithmetic takes longer than memory. To the second level: the blocks of
// a layer tend to lie multiples of 4 KiB apart, and would push each other out of the first.
constexpr Fetch attend_fetch(int rows) { return rows <= 4 ? Fetch::kToL2 : Fetch::kNothing; }

// What the cache holds, and how a vector of it becomes floats.
struct F32Cache : F32Format {};

struct F16Cache : F32Format {
  static constexpr int64_t kElementBytes = 2;
  template <int kPart>
  static Lanes weight(const char* p) {
    return load_f16(reinterpret_cast<const uint16_t*>(p));
  }
};

struct Bf16Cache : F32Format {
  static constexpr int64_t kElementBytes = 2;
  template <int kPart>
  static Lanes weight(const char* p) {
    return load_bf16(reinterpret_cast<const uint16_t*>(p));
  }
};

struct AttendRow {
  const float* q;     // (head_dim)
  int64_t first_key;  // the keys it sees
  int64_t last_key;
  float max;
};

struct AttendChunk {
  AttendRow rows[kChunkRows];
  alignas(64) float sum[kChunkRows][kLane];
  alignas(64) float out[kChunkFloats];  // (rows, v_stride): not yet divided by the sum
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

const char* block_bytes(const AttendArgs& a, int64_t block) {
  return static_cast<const char*>(a.blocks[block]);
}

// Scores of kRows rows against kBlocks blocks from `block` on; hidden keys score -infinity.
template <class Cache, int kRows, int kBlocks>
__attribute__((always_inline)) inline void score_blocks(const AttendArgs& a, const AttendRow* rows,
                                                        const KeyRange& range, int64_t block,
                                                        Probabilities& p) {
  Lanes sum[kRows][kBlocks];
  const char* keys[kBlocks];  // (head_dim, 16)
  const char* q[kRows];
#pragma GCC unroll 8
  for (int b = 0; b < kBlocks; ++b) keys[b] = block_bytes(a, block + b) + a.k_offset;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    q[r] = reinterpret_cast<const char*>(rows[r].q);
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b) sum[r][b] = zero();
  }
  // Meanwhile the values of these blocks are fetched, which are as long.
  const char* ahead[kBlocks];
#pragma GCC unroll 8
  for (int b = 0; b < kBlocks; ++b) ahead[b] = block_bytes(a, block + b) + a.v_offset;
  const int64_t step = kBlockTokens * Cache::kElementBytes;
  accumulate<Cache, attend_fetch(kRows)>(sum, keys, step, q, a.head_dim, ahead, step);
  const Lanes scale = set(a.scale);
  float* scores[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) scores[r] = p[r] + (block - range.tile_block) * kBlockTokens;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b) {
      Lanes score = mul(sum[r][b], scale);
      if (!range.whole) {
        const int64_t base = (block + b) * kBlockTokens;
        const Lanes hidden = set(-kInfinity);
        const Lanes lane = lane_numbers();
        const Lanes end = set(static_cast<float>(rows[r].last_key + 1 - base));
        const Lanes begin = set(static_cast<float>(rows[r].first_key - base));
        score = select_less(lane, end, score, hidden);
        score = select_less(lane, begin, hidden, score);
      }
      store(scores[r] + b * kBlockTokens, score);
    }
  }
}

// Scores become exp(score - max), added to the row's sum. Returns what the sum and the output of
// earlier tiles have been and have to be multiplied by.
float soften(const KeyRange& range, AttendRow& row, float* sum, float* p) {
  const int64_t begin = (range.first_block - range.tile_block) * kBlockTokens;
  const int64_t end = (range.last_block + 1 - range.tile_block) * kBlockTokens;
  if (row.first_key > range.last_block * kBlockTokens + kBlockTokens - 1 ||
      row.last_key < range.first_block * kBlockTokens) {
    for (int64_t i = begin; i < end; i += kLane) store(p + i, zero());
    return 1.0f;
  }
  Lanes highest = load(p + begin);
  for (int64_t i = begin + kLane; i < end; i += kLane) highest = max(highest, load(p + i));
  const float tile_max = fold_max(highest);
  Lanes total = load(sum);
  float rescale = 1.0f;
  if (tile_max > row.max) {
    const Lanes factor = exponential(set(row.max - tile_max));
    rescale = first(factor);
    total = mul(total, factor);
    row.max = tile_max;
  }
  const Lanes shift = set(row.max);
  for (int64_t i = begin; i < end; i += kLane) {
    const Lanes value = exponential(sub(load(p + i), shift));
    store(p + i, value);
    total = add(total, value);
  }
  store(sum, total);
  return rescale;
}

// Columns [16 * vector, 16 * (vector + kVectors)) of the output of kRows rows:
// out = out * rescale + p * values, over keys [first_key, last_key], which every row sees.
template <class Cache, int kRows, int kVectors>
__attribute__((always_inline)) inline void add_columns(const AttendArgs& a, int64_t tile_key,
                                                       int64_t first_key, int64_t last_key,
                                                       const float* rescale,
                                                       const float (*p)[kTileKeys], int64_t vector,
                                                       float* out) {
  const int64_t row_bytes = a.v_stride * Cache::kElementBytes;
  const int64_t vector_bytes = kLane * Cache::kElementBytes;
  const int64_t last_block = (a.first_position + a.tokens - 1) / kBlockTokens;
  Lanes sum[kRows][kVectors];
  out += vector * kLane;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Lanes factor = set(rescale[r]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = mul(load(out + r * a.v_stride + v * kLane), factor);
    }
  }
  for (int64_t key = first_key; key <= last_key;) {
    const int64_t slot = key % kBlockTokens;
    const int64_t left = last_key + 1 - key;
    const int64_t count = left < kBlockTokens - slot ? left : kBlockTokens - slot;
    const char* values[kVectors];  // (16, v_stride)
    const char* weights[kRows];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      values[v] = block_bytes(a, key / kBlockTokens) + a.v_offset + slot * row_bytes +
                  (vector + v) * vector_bytes;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      weights[r] = reinterpret_cast<const char*>(p[r] + (key - tile_key));
    }
    // Meanwhile keys of the next tile are fetched.
    const int64_t block = key / kBlockTokens;
    const int64_t next = block + kTileBlocks < last_block ? block + kTileBlocks : last_block;
    const char* ahead[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      ahead[v] =
          block_bytes(a, next) + a.k_offset + vector * kBlockTokens * vector_bytes + v * kLaneBytes;
    }
    accumulate<Cache, attend_fetch(kRows)>(sum, values, row_bytes, weights, count, ahead,
                                           kVectors * vector_bytes);
    key += count;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(out + r * a.v_stride + v * kLane, sum[r][v]);
  }
}

template <class Cache, int kRows>
void add_values(const AttendArgs& a, int64_t tile_key, int64_t first_key, int64_t last_key,
                const float* rescale, const float (*p)[kTileKeys], float* out) {
  constexpr int kVectors = tile_vectors(kRows);
  const int64_t vectors = a.v_stride / kLane;
  int64_t v = 0;
  for (; v + kVectors <= vectors; v += kVectors) {
    add_columns<Cache, kRows, kVectors>(a, tile_key, first_key, last_key, rescale, p, v, out);
  }
  for (; v < vectors; ++v) {
    add_columns<Cache, kRows, 1>(a, tile_key, first_key, last_key, rescale, p, v, out);
  }
}

// The same where the rows do not see the same keys: those that all see are added together, those
// before and after them row by row. A hidden value is not even multiplied by 0: it may be a NaN.
template <class Cache, int kRows>
void add_ragged_values(const AttendArgs& a, const AttendRow* rows, const KeyRange& range,
                       int64_t tile_key, const float* rescale, const float (*p)[kTileKeys],
                       float* out) {
  const int64_t begin = range.first_block * kBlockTokens;
  const int64_t end =
      range.last_key < tile_key + kTileKeys ? range.last_key + 1 : tile_key + kTileKeys;
  const auto later = [](int64_t x, int64_t y) { return x > y ? x : y; };
  const auto earlier = [](int64_t x, int64_t y) { return x < y ? x : y; };
  const int64_t shared_begin = later(begin, rows[kRows - 1].first_key);
  const int64_t shared_end = earlier(end, rows[0].last_key + 1);
  const bool shared = shared_begin < shared_end;
  const float ones[kTileRows] = {1, 1, 1, 1, 1, 1};
  for (int r = 0; r < kRows; ++r) {
    const int64_t row_end = earlier(end, rows[r].last_key + 1);
    add_values<Cache, 1>(a, tile_key, later(begin, rows[r].first_key),
                         (shared ? shared_begin : row_end) - 1, rescale + r, p + r,
                         out + r * a.v_stride);
  }
  if (!shared) return;
  add_values<Cache, kRows>(a, tile_key, shared_begin, shared_end - 1, ones, p, out);
  for (int r = 0; r < kRows; ++r) {
    const int64_t row_end = earlier(end, rows[r].last_key + 1);
    if (shared_end == row_end) continue;
    add_values<Cache, 1>(a, tile_key, shared_end, row_end - 1, ones, p + r, out + r * a.v_stride);
  }
}

template <class Cache, int kRows>
void attend_tile(const AttendArgs& a, AttendChunk& chunk, int64_t row, int64_t tile) {
  constexpr int kVectors = tile_vectors(kRows);
  AttendRow* rows = chunk.rows + row;
  float* out = chunk.out + row * a.v_stride;
  // Positions only grow with the row: the first row sees the earliest key, the last the latest.
  const int64_t first_key = rows[0].first_key;
  const int64_t last_key = rows[kRows - 1].last_key;
  KeyRange range;
  range.tile_block = tile * kTileBlocks;
  range.first_block = range.tile_block;
  range.last_block = range.tile_block + kTileBlocks - 1;
  if (first_key / kBlockTokens > range.first_block) range.first_block = first_key / kBlockTokens;
  if (last_key / kBlockTokens < range.last_block) range.last_block = last_key / kBlockTokens;
  if (range.first_block > range.last_block) return;
  range.last_key = last_key;
  range.whole = rows[kRows - 1].first_key <= range.first_block * kBlockTokens &&
                rows[0].last_key >= range.last_block * kBlockTokens + kBlockTokens - 1;

  alignas(64) Probabilities p;
  int64_t block = range.first_block;
  for (; block + kVectors <= range.last_block + 1; block += kVectors) {
    score_blocks<Cache, kRows, kVectors>(a, rows, range, block, p);
  }
  for (; block <= range.last_block; ++block) {
    score_blocks<Cache, kRows, 1>(a, rows, range, block, p);
  }

  float rescale[kRows];
  for (int r = 0; r < kRows; ++r) rescale[r] = soften(range, rows[r], chunk.sum[row + r], p[r]);

  const int64_t tile_key = range.tile_block * kBlockTokens;
  if (range.whole) {
    const int64_t end = (range.last_block + 1) * kBlockTokens;
    add_values<Cache, kRows>(a, tile_key, range.first_block * kBlockTokens, end - 1, rescale, p,
                             out);
  } else {
    add_ragged_values<Cache, kRows>(a, rows, range, tile_key, rescale, p, out);
  }
}

// Rows [begin, begin + count) of the call.
template <class Cache>
void attend_chunk(const AttendArgs& a, int64_t begin, int64_t count) {
  using TileFunction = void (*)(const AttendArgs&, AttendChunk&, int64_t row, int64_t tile);
  static constexpr TileFunction kTiles[kTileRows] = {attend_tile<Cache, 1>, attend_tile<Cache, 2>,
                                                     attend_tile<Cache, 3>, attend_tile<Cache, 4>,
                                                     attend_tile<Cache, 5>, attend_tile<Cache, 6>};
  AttendChunk chunk;
  for (int64_t r = 0; r < count; ++r) {
    const int64_t token = (begin + r) / a.group;
    const int64_t head = (begin + r) % a.group;
    AttendRow& row = chunk.rows[r];
    row.q = a.q + token * a.q_stride + head * a.head_dim;
    row.last_key = a.first_position + token;
    row.first_key = a.window > 0 && a.window <= row.last_key ? row.last_key - a.window + 1 : 0;
    row.max = -kInfinity;
    store(chunk.sum[r], zero());
    for (int64_t i = 0; i < a.v_stride; i += kLane) store(chunk.out + r * a.v_stride + i, zero());
  }
  const int64_t first_tile = chunk.rows[0].first_key / kTileKeys;
  const int64_t last_tile = chunk.rows[count - 1].last_key / kTileKeys;
  for (int64_t tile = first_tile; tile <= last_tile; ++tile) {
    for (int64_t row = 0; row < count;) {
      const int rows = next_tile_rows(count - row);
      kTiles[rows - 1](a, chunk, row, tile);
      row += rows;
    }
  }
  for (int64_t r = 0; r < count; ++r) {
    const int64_t token = (begin + r) / a.group;
    const int64_t head = (begin + r) % a.group;
    const Lanes sum = set(fold_add(load(chunk.sum[r])));
    const float* values = chunk.out + r * a.v_stride;
    float* out = a.out + token * a.out_stride + head * a.head_dim;
    int64_t i = 0;
    for (; i + kLane <= a.head_dim; i += kLane) store(out + i, div(load(values + i), sum));
    if (i < a.head_dim) store_part(out + i, div(load(values + i), sum), a.head_dim - i);
  }
}

template <class Cache>
void attend(const AttendArgs& a) {
  const int64_t rows = a.tokens * a.group;
  int64_t chunk_rows = kChunkFloats / a.v_stride;
  if (chunk_rows > kChunkRows) chunk_rows = kChunkRows;
  for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
    attend_chunk<Cache>(a, begin, rows - begin < chunk_rows ? rows - begin : chunk_rows);
  }
}

void attend_f32(const AttendArgs& a) { attend<F32Cache>(a); }
void attend_f16(const AttendArgs& a) { attend<F16Cache>(a); }
void attend_bf16(const AttendArgs& a) { attend<Bf16Cache>(a); }
