// The online softmax of causal attention over tiles of 64 keys (Milakov & Gimelshein 2018;
// cpu/attend_args.h), for exact and for coded keys: rows, the part of a tile that they see, and
// their states. Included inside the anonymous namespace of a file, after exponential.inl.

// Rows are taken in chunks whose states fit the first-level cache.
constexpr int64_t kChunkRows = 48;
constexpr int64_t kChunkFloats = 7680;  // 48 rows of 128, 26 of 256, 14 of 512

inline int64_t state_floats(const AttendArgs& a) { return kStateHead + a.state_width; }

inline const char* block_bytes(const AttendArgs& a, int64_t block) {
  return static_cast<const char*>(a.blocks[block]);
}

inline AttendRow row_of(const AttendArgs& a, int64_t index) {
  AttendRow row;
  const int64_t token = index / a.group;
  row.head = index % a.group;
  row.q = a.q + token * a.q_stride + row.head * a.head_dim;
  row.position = a.first_position + token;
  row.last_key = row.position;
  row.first_key = a.window > 0 && a.window <= row.last_key ? row.last_key - a.window + 1 : 0;
  if (a.chunk > 0) {
    const int64_t chunk_begin = row.position / a.chunk * a.chunk;
    if (row.first_key < chunk_begin) row.first_key = chunk_begin;
  }
  return row;
}

// -infinity where a row does not see a key of the block.
inline Lanes hide_keys(Lanes score, const AttendRow& row, int64_t block) {
  const int64_t base = block * kBlockTokens;
  const Lanes hidden = set(-kInfinity), lane = lane_numbers();
  score = select_less(lane, set(static_cast<float>(row.last_key + 1 - base)), score, hidden);
  return select_less(lane, set(static_cast<float>(row.first_key - base)), hidden, score);
}

inline bool changes_scores(const AttendArgs& a) {
  return a.softcap > 0.0f || a.alibi_slopes != nullptr;
}

// The soft-cap and the slopes of the scores of a tile (cpu/attend_args.h). The -infinity of a hidden
// key stays. A function of its own: most models have neither.
__attribute__((noinline)) void change_scores(const AttendArgs& a, const KeyRange& range,
                                             const AttendRow* rows, int count, Probabilities& p) {
  for (int r = 0; r < count; ++r) {
    for (int64_t block = range.first_block; block <= range.last_block; ++block) {
      float* scores = p[r] + (block - range.tile_block) * kBlockTokens;
      if (a.softcap > 0.0f) soft_cap(scores, kBlockTokens, 1.0f, a.softcap);
      if (a.alibi_slopes == nullptr) continue;
      const int64_t before = block * kBlockTokens - rows[r].position;
      const Lanes distance = add(lane_numbers(), set(static_cast<float>(before)));
      store(scores, fma(set(a.alibi_slopes[rows[r].head]), distance, load(scores)));
    }
  }
}

inline void clear_state(const AttendArgs& a, float* state) {
  for (int64_t i = kLane; i < state_floats(a); i += kLane) store(state + i, zero());
  state[0] = -kInfinity;
}

inline void write_row(const AttendArgs& a, int64_t index, const float* state) {
  Lanes sum = set(fold_add(load(state + kLane))), old_factor = set(1.0f);
  const int64_t head = index % a.group;
  if (a.sink_logits != nullptr) {
    const float logit = a.sink_logits[head];
    const float highest = state[0] < logit ? logit : state[0];
    old_factor = exponential(set(state[0] - highest));
    sum = fma(sum, old_factor, exponential(set(logit - highest)));
  }
  const float* values = state + kStateHead;
  float* out = a.out + index / a.group * a.out_stride + head * a.value_dim;
  const auto output = [&](int64_t i) { return div(mul(load(values + i), old_factor), sum); };
  int64_t i = 0;
  for (; i + kLane <= a.value_dim; i += kLane) store(out + i, output(i));
  if (i < a.value_dim) store_part(out + i, output(i), a.value_dim - i);
}

// The part of a tile that these rows see; false if they see none of it.
inline bool range_of(const AttendRow* rows, int count, int64_t tile, KeyRange& range) {
  // Positions only grow with the row: the first row sees the earliest key, the last row the latest.
  const AttendRow& first = rows[0];
  const AttendRow& last = rows[count - 1];
  range.tile_block = tile * kTileBlocks;
  range.first_block = range.tile_block;
  range.last_block = range.tile_block + kTileBlocks - 1;
  if (first.first_key / kBlockTokens > range.first_block) {
    range.first_block = first.first_key / kBlockTokens;
  }
  if (last.last_key / kBlockTokens < range.last_block) {
    range.last_block = last.last_key / kBlockTokens;
  }
  if (range.first_block > range.last_block) return false;
  range.last_key = last.last_key;
  range.whole = last.first_key <= range.first_block * kBlockTokens &&
                first.last_key >= range.last_block * kBlockTokens + kBlockTokens - 1;
  return true;
}

inline bool sees_any(const KeyRange& range, const AttendRow& row) {
  return row.first_key < (range.last_block + 1) * kBlockTokens &&
         row.last_key >= range.first_block * kBlockTokens;
}

// Scores become exp(score - maximum) and are added to the row's sum. rescale[row]: the factor for
// the output of earlier tiles; the sum is already rescaled. after_row(row): other work for
// meanwhile.
template <class AfterRow>
__attribute__((always_inline)) inline void soften(const AttendArgs& a, const KeyRange& range,
                                                  const AttendRow* rows, int count, float* states,
                                                  int64_t begin, int64_t end, Probabilities& p,
                                                  float (&rescale)[kLane],
                                                  const AfterRow& after_row) {
  alignas(64) float highest[kLane] = {};
  for (int r = 0; r < count; ++r) {
    rescale[r] = 0.0f;
    if (!sees_any(range, rows[r])) continue;
    Lanes lanes = load(p[r] + begin);
    for (int64_t i = begin + kLane; i < end; i += kLane) lanes = max(lanes, load(p[r] + i));
    const float tile_max = fold_max(lanes);
    const float row_max = states[r * state_floats(a)];
    highest[r] = row_max < tile_max ? tile_max : row_max;
    rescale[r] = row_max - highest[r];
  }
  // For all rows at once, and without a branch on which maximum has grown: it would be
  // mispredicted.
  for (int r = count; r < kLane; ++r) rescale[r] = 0.0f;
  store(rescale, exponential(load(rescale)));
  for (int r = 0; r < count; ++r) {
    float* state = states + r * state_floats(a);
    if (!sees_any(range, rows[r])) {
      for (int64_t i = begin; i < end; i += kLane) store(p[r] + i, zero());
      continue;
    }
    Lanes total = mul(load(state + kLane), set(rescale[r]));
    const Lanes shift = set(highest[r]);
#pragma GCC unroll 4
    for (int64_t i = begin; i < end; i += kLane) {
      const Lanes value = exponential(sub(load(p[r] + i), shift));
      store(p[r] + i, value);
      total = add(total, value);
    }
    store(state + kLane, total);
    state[0] = highest[r];
    after_row(r);
  }
}

template <class AfterRow>
inline void soften(const AttendArgs& a, const KeyRange& range, const AttendRow* rows, int count,
                   float* states, Probabilities& p, float (&rescale)[kLane],
                   const AfterRow& after_row) {
  const int64_t begin = (range.first_block - range.tile_block) * kBlockTokens;
  const int64_t end = (range.last_block + 1 - range.tile_block) * kBlockTokens;
  // Almost all tiles are whole: their loops are unrolled.
  if (begin == 0 && end == kTileKeys) {
    soften(a, range, rows, count, states, 0, kTileKeys, p, rescale, after_row);
  } else {
    soften(a, range, rows, count, states, begin, end, p, rescale, after_row);
  }
}
