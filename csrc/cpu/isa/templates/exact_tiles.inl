// Tiles of 64 keys of causal attention over exact keys and values: scores, and sums of values.
// Included inside the anonymous namespace of a file, after chains.inl and softmax.inl.
//
// A row is one query head of one token. Rows go in register tiles, so that a vector of keys or
// values is loaded once for up to six of them.

// With more than four rows, arithmetic takes longer than memory. The prefetch goes to the second
// level: the blocks of a layer tend to lie multiples of 4 KiB apart, and would evict each other
// from the first.
constexpr int kFewRows = 4;
constexpr Fetch attend_fetch(int rows) { return rows <= kFewRows ? Fetch::kToL2 : Fetch::kNothing; }

// How the cache stores a vector, and how it becomes floats.
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
  // Meanwhile the values of these blocks are prefetched. Mostly they are as long as the keys.
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
      if (!range.whole) score = hide_keys(score, rows[r], block + b);
      store(scores[r] + b * kBlockTokens, score);
    }
  }
}

// The last block that this call reads.
inline int64_t last_block_of(const AttendArgs& a) {
  const int64_t last = a.first_position + a.tokens - 1;
  const int64_t end = a.states != nullptr ? a.end_span * kSpanKeys - 1 : last;
  return (end < last ? end : last) / kBlockTokens;
}

// The block at the same place of the next tile, or the last block.
inline int64_t block_ahead(int64_t block, int64_t last_block) {
  return block + kTileBlocks < last_block ? block + kTileBlocks : last_block;
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
  const int64_t stride = state_floats(a);
  const int64_t last_block = last_block_of(a);
  Lanes sum[kRows][kVectors];
  out += vector * kLane;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Lanes factor = set(rescale[r]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = mul(load(out + r * stride + v * kLane), factor);
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
    // Meanwhile keys of the next tile are prefetched.
    const int64_t block = key / kBlockTokens;
    const int64_t next = block_ahead(block, last_block);
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
    for (int v = 0; v < kVectors; ++v) store(out + r * stride + v * kLane, sum[r][v]);
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
  if constexpr (kVectors > 1) {
    for (; v < vectors; ++v) {
      add_columns<Cache, kRows, 1>(a, tile_key, first_key, last_key, rescale, p, v, out);
    }
  }
}

// The same where the rows do not see the same keys. The keys that all rows see are added together,
// the keys before and after them row by row. A hidden value is not even multiplied by 0: it may be
// a NaN.
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
                         out + r * state_floats(a));
  }
  if (!shared) return;
  add_values<Cache, kRows>(a, tile_key, shared_begin, shared_end - 1, ones, p, out);
  for (int r = 0; r < kRows; ++r) {
    const int64_t row_end = earlier(end, rows[r].last_key + 1);
    if (shared_end == row_end) continue;
    add_values<Cache, 1>(a, tile_key, shared_end, row_end - 1, ones, p + r,
                         out + r * state_floats(a));
  }
}

template <class Cache, int kRows>
__attribute__((noinline)) void score_tile(const AttendArgs& a, const AttendRow* rows,
                                          const KeyRange& range, Probabilities& p) {
  constexpr int kVectors = tile_vectors(kRows);
  int64_t block = range.first_block;
  for (; block + kVectors <= range.last_block + 1; block += kVectors) {
    score_blocks<Cache, kRows, kVectors>(a, rows, range, block, p);
  }
  if constexpr (kVectors > 1) {
    for (; block <= range.last_block; ++block) {
      score_blocks<Cache, kRows, 1>(a, rows, range, block, p);
    }
  }
}

// out: of the first row, a state apart from the next one's.
template <class Cache, int kRows>
__attribute__((noinline)) void add_tile_values(const AttendArgs& a, const AttendRow* rows,
                                               const KeyRange& range, const float* rescale,
                                               const Probabilities& p, float* out) {
  const int64_t tile_key = range.tile_block * kBlockTokens;
  if (range.whole) {
    const int64_t end = (range.last_block + 1) * kBlockTokens;
    add_values<Cache, kRows>(a, tile_key, range.first_block * kBlockTokens, end - 1, rescale, p,
                             out);
  } else {
    add_ragged_values<Cache, kRows>(a, rows, range, tile_key, rescale, p, out);
  }
}
