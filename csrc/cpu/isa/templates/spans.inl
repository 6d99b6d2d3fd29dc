// Attention over exact keys: a softmax for each span of keys, and how the spans are merged (the
// rule is in cpu/attend_args.h). Included inside the anonymous namespace of a file, after
// exact_tiles.inl.

// One tile of keys for `count` rows, 1 to kTileRows.
inline void attend_tile(const ExactTiles& tiles, const AttendArgs& a, const AttendRow* rows,
                        int count, float* states, int64_t tile) {
  KeyRange range;
  if (!range_of(rows, count, tile, range)) return;
  alignas(64) Probabilities p;
  tiles.score[count - 1](a, rows, range, p);
  if (changes_scores(a)) change_scores(a, range, rows, count, p);
  alignas(64) float rescale[kLane];
  // Keys of the next tile. Most of them are prefetched while values are added.
  const int64_t next = block_ahead(range.last_block, last_block_of(a));
  const char* ahead = block_bytes(a, next) + a.k_offset;
  const int64_t ahead_bytes = kBlockTokens * a.head_dim * tiles.element_bytes;
  soften(a, range, rows, count, states, p, rescale, [&](int row) {
    if (count <= kFewRows) fetch_part<attend_fetch(kFewRows)>(ahead, ahead_bytes, row, count);
  });
  tiles.add[count - 1](a, rows, range, rescale, p, states + kStateHead);
}

void attend_span(const ExactTiles& tiles, const AttendArgs& a, const AttendRow* rows, int64_t count,
                 int64_t span, float* states) {
  for (int64_t r = 0; r < count; ++r) clear_state(a, states + r * state_floats(a));
  constexpr int64_t kSpanTiles = kSpanKeys / kTileKeys;
  int64_t tile = span * kSpanTiles;
  int64_t last_tile = tile + kSpanTiles - 1;
  if (rows[0].first_key / kTileKeys > tile) tile = rows[0].first_key / kTileKeys;
  if (rows[count - 1].last_key / kTileKeys < last_tile) {
    last_tile = rows[count - 1].last_key / kTileKeys;
  }
  for (; tile <= last_tile; ++tile) {
    for (int64_t row = 0; row < count;) {
      const int tile_rows = next_tile_rows(count - row);
      attend_tile(tiles, a, rows + row, tile_rows, states + row * state_floats(a), tile);
      row += tile_rows;
    }
  }
}

template <class Cache>
void attend_span_of(const AttendArgs& a, const AttendRow* rows, int64_t count, int64_t span,
                    float* states);

template <class Cache>
constexpr ExactTiles kExactTiles = {
    .element_bytes = Cache::kElementBytes,
    .score = {score_tile<Cache, 1>, score_tile<Cache, 2>, score_tile<Cache, 3>,
              score_tile<Cache, 4>, score_tile<Cache, 5>, score_tile<Cache, 6>},
    .add = {add_tile_values<Cache, 1>, add_tile_values<Cache, 2>, add_tile_values<Cache, 3>,
            add_tile_values<Cache, 4>, add_tile_values<Cache, 5>, add_tile_values<Cache, 6>},
    .span = attend_span_of<Cache>};

template <class Cache>
void attend_span_of(const AttendArgs& a, const AttendRow* rows, int64_t count, int64_t span,
                    float* states) {
  attend_span(kExactTiles<Cache>, a, rows, count, span, states);
}

// Merges the states of earlier spans into the states of a span. earlier, states: (count, state) of
// the previous span and of this one.
void carry_states(const AttendArgs& a, const AttendRow* rows, int64_t count, int64_t span,
                  const float* earlier, float* states) {
  const int64_t stride = state_floats(a);
  for (int64_t begin = 0; begin < count; begin += kLane) {
    const int64_t some = count - begin < kLane ? count - begin : kLane;
    // Sixteen rows' factors at once: one by one, exp would cost more than all the rest.
    alignas(64) float highest[kLane], old_factor[kLane] = {}, new_factor[kLane] = {};
    for (int64_t r = 0; r < some; ++r) {
      const float old_max = earlier[(begin + r) * stride];
      const float new_max = states[(begin + r) * stride];
      highest[r] = old_max < new_max ? new_max : old_max;
      old_factor[r] = old_max - highest[r];
      new_factor[r] = new_max - highest[r];
    }
    store(old_factor, exponential(load(old_factor)));
    store(new_factor, exponential(load(new_factor)));
    for (int64_t r = 0; r < some; ++r) {
      const AttendRow& row = rows[begin + r];
      if (row.first_key / kSpanKeys >= span) continue;  // has nothing from before
      const bool ended = row.last_key / kSpanKeys < span;
      const float* from = earlier + (begin + r) * stride;
      float* to = states + (begin + r) * stride;
      to[0] = ended ? from[0] : highest[r];
      const Lanes old_scale = set(old_factor[r]), new_scale = set(new_factor[r]);
      for (int64_t i = kLane; i < stride; i += kLane) {
        const Lanes old = load(from + i);
        store(to + i, ended ? old : fma(load(to + i), new_scale, mul(old, old_scale)));
      }
    }
  }
}

struct AttendChunk {
  AttendRow rows[kChunkRows];
  alignas(
      64) float states[2][kChunkFloats];  // (rows, state): of this span, and of all earlier spans
};

// All spans of rows [begin, begin + count) of the call, to `out`.
inline void attend_chunk(const ExactTiles& tiles, const AttendArgs& a, AttendChunk& chunk,
                         int64_t begin, int64_t count) {
  const int64_t first_span = chunk.rows[0].first_key / kSpanKeys;
  const int64_t last_span = chunk.rows[count - 1].last_key / kSpanKeys;
  float* states = chunk.states[0];
  float* earlier = chunk.states[1];
  attend_span(tiles, a, chunk.rows, count, first_span, states);
  for (int64_t span = first_span + 1; span <= last_span; ++span) {
    float* const walked = states;
    states = earlier;
    earlier = walked;
    attend_span(tiles, a, chunk.rows, count, span, states);
    carry_states(a, chunk.rows, count, span, earlier, states);
  }
  for (int64_t r = 0; r < count; ++r) write_row(a, begin + r, states + r * state_floats(a));
}

inline float* states_of(const AttendArgs& a, int64_t span, int64_t row) {
  return a.states + ((span - a.first_span) * a.tokens * a.group + row) * state_floats(a);
}

void attend(const ExactTiles& tiles, const AttendArgs& a) {
  const int64_t rows = a.tokens * a.group;
  int64_t chunk_rows = kChunkFloats / state_floats(a);
  if (chunk_rows > kChunkRows) chunk_rows = kChunkRows;
  AttendChunk chunk;
  for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
    const int64_t count = rows - begin < chunk_rows ? rows - begin : chunk_rows;
    for (int64_t r = 0; r < count; ++r) chunk.rows[r] = row_of(a, begin + r);
    if (a.states == nullptr) {
      attend_chunk(tiles, a, chunk, begin, count);
      continue;
    }
    for (int64_t span = a.first_span; span < a.end_span; ++span) {
      attend_span(tiles, a, chunk.rows, count, span, states_of(a, span, begin));
    }
  }
}

void merge_spans(const AttendArgs& a) {
  AttendRow rows[kLane];
  for (int64_t begin = 0; begin < a.tokens * a.group; begin += kLane) {
    const int64_t left = a.tokens * a.group - begin;
    const int64_t count = left < kLane ? left : kLane;
    for (int64_t r = 0; r < count; ++r) rows[r] = row_of(a, begin + r);
    for (int64_t span = a.first_span + 1; span < a.end_span; ++span) {
      carry_states(a, rows, count, span, states_of(a, span - 1, begin), states_of(a, span, begin));
    }
    for (int64_t r = 0; r < count; ++r) {
      write_row(a, begin + r, states_of(a, a.end_span - 1, begin + r));
    }
  }
}

void attend_f32(const AttendArgs& a) { attend(kExactTiles<F32Cache>, a); }
void attend_f16(const AttendArgs& a) { attend(kExactTiles<F16Cache>, a); }
void attend_bf16(const AttendArgs& a) { attend(kExactTiles<Bf16Cache>, a); }
