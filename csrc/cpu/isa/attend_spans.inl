// Spans and rows of causal attention: a softmax for each span of keys, and how they are merged (the
// rule is in cpu/kernels.h). Included inside the anonymous namespace of each file that has included
// attend_tiles.inl; knows nothing of the registers behind Lanes, nor of who computes which span.
//
// Rows are taken in chunks whose states fit the first-level cache; a chunk walks the tiles of a
// span.

constexpr int64_t kChunkRows = 48;
constexpr int64_t kChunkFloats = 7680;  // 48 rows of 128, 26 of 256: sets the largest head_dim

struct AttendChunk {
  AttendRow rows[kChunkRows];
  alignas(64) float states[kChunkFloats];   // (rows, state): of the span that is being walked
  alignas(64) float earlier[kChunkFloats];  // (rows, state): of the spans before it
};

bool sees(const AttendRow& row, int64_t span) {
  return row.first_key / kSpanKeys <= span && span <= row.last_key / kSpanKeys;
}

AttendRow row_of(const AttendArgs& a, int64_t index) {
  AttendRow row;
  const int64_t token = index / a.group;
  row.q = a.q + token * a.q_stride + index % a.group * a.head_dim;
  row.last_key = a.first_position + token;
  row.first_key = a.window > 0 && a.window <= row.last_key ? row.last_key - a.window + 1 : 0;
  return row;
}

void clear_state(const AttendArgs& a, float* state) {
  for (int64_t i = kLane; i < state_floats(a); i += kLane) store(state + i, zero());
  state[0] = -kInfinity;
}

// merged (may be either): the state of earlier spans, with that of the next.
void merge_states(const AttendArgs& a, const float* earlier, const float* next, float* merged) {
  const float highest = earlier[0] < next[0] ? next[0] : earlier[0];
  const Lanes old_factor = exponential(set(earlier[0] - highest));
  const Lanes new_factor = exponential(set(next[0] - highest));
  merged[0] = highest;
  for (int64_t i = kLane; i < state_floats(a); i += kLane) {
    store(merged + i, fma(load(next + i), new_factor, mul(load(earlier + i), old_factor)));
  }
}

void write_row(const AttendArgs& a, int64_t index, const float* state) {
  const Lanes sum = set(fold_add(load(state + kLane)));
  const float* values = state + kStateHead;
  float* out = a.out + index / a.group * a.out_stride + index % a.group * a.head_dim;
  int64_t i = 0;
  for (; i + kLane <= a.head_dim; i += kLane) store(out + i, div(load(values + i), sum));
  if (i < a.head_dim) store_part(out + i, div(load(values + i), sum), a.head_dim - i);
}

// The tiles of one span, for rows that begin with the states of nothing, or see none of it.
template <class Cache>
void attend_span(const AttendArgs& a, const AttendRow* rows, int64_t count, int64_t span,
                 float* states) {
  using TileFunction = void (*)(const AttendArgs&, const AttendRow*, float* states, int64_t tile);
  static constexpr TileFunction kTiles[kTileRows] = {attend_tile<Cache, 1>, attend_tile<Cache, 2>,
                                                     attend_tile<Cache, 3>, attend_tile<Cache, 4>,
                                                     attend_tile<Cache, 5>, attend_tile<Cache, 6>};
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
      kTiles[tile_rows - 1](a, rows + row, states + row * state_floats(a), tile);
      row += tile_rows;
    }
  }
}

// All spans of rows [begin, begin + count) of the call, to `out`.
template <class Cache>
void attend_chunk(const AttendArgs& a, AttendChunk& chunk, int64_t begin, int64_t count) {
  const int64_t stride = state_floats(a);
  for (int64_t r = 0; r < count; ++r) clear_state(a, chunk.states + r * stride);
  const int64_t first_span = chunk.rows[0].first_key / kSpanKeys;
  const int64_t last_span = chunk.rows[count - 1].last_key / kSpanKeys;
  for (int64_t span = first_span; span <= last_span; ++span) {
    // A row that has seen a span and sees this one too begins anew, and is merged afterwards.
    const auto merges = [&](int64_t r) {
      return sees(chunk.rows[r], span) && sees(chunk.rows[r], span - 1);
    };
    for (int64_t r = 0; r < count; ++r) {
      if (!merges(r)) continue;
      float* state = chunk.states + r * stride;
      for (int64_t i = 0; i < stride; i += kLane) {
        store(chunk.earlier + r * stride + i, load(state + i));
      }
      clear_state(a, state);
    }
    attend_span<Cache>(a, chunk.rows, count, span, chunk.states);
    for (int64_t r = 0; r < count; ++r) {
      if (!merges(r)) continue;
      float* state = chunk.states + r * stride;
      merge_states(a, chunk.earlier + r * stride, state, state);
    }
  }
  for (int64_t r = 0; r < count; ++r) write_row(a, begin + r, chunk.states + r * stride);
}

float* states_of(const AttendArgs& a, int64_t span, int64_t row) {
  return a.states + ((span - a.first_span) * a.tokens * a.group + row) * state_floats(a);
}

template <class Cache>
void attend(const AttendArgs& a) {
  const int64_t rows = a.tokens * a.group;
  int64_t chunk_rows = kChunkFloats / state_floats(a);
  if (chunk_rows > kChunkRows) chunk_rows = kChunkRows;
  AttendChunk chunk;
  for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
    const int64_t count = rows - begin < chunk_rows ? rows - begin : chunk_rows;
    for (int64_t r = 0; r < count; ++r) chunk.rows[r] = row_of(a, begin + r);
    if (a.states == nullptr) {
      attend_chunk<Cache>(a, chunk, begin, count);
      continue;
    }
    for (int64_t span = a.first_span; span < a.end_span; ++span) {
      float* states = states_of(a, span, begin);
      for (int64_t r = 0; r < count; ++r) clear_state(a, states + r * state_floats(a));
      attend_span<Cache>(a, chunk.rows, count, span, states);
    }
  }
}

void merge_spans(const AttendArgs& a) {
  for (int64_t r = 0; r < a.tokens * a.group; ++r) {
    const AttendRow row = row_of(a, r);
    float* merged = states_of(a, row.first_key / kSpanKeys, r);
    for (int64_t span = row.first_key / kSpanKeys + 1; span <= row.last_key / kSpanKeys; ++span) {
      merge_states(a, merged, states_of(a, span, r), merged);
    }
    write_row(a, r, merged);
  }
}

void attend_f32(const AttendArgs& a) { attend<F32Cache>(a); }
void attend_f16(const AttendArgs& a) { attend<F16Cache>(a); }
void attend_bf16(const AttendArgs& a) { attend<Bf16Cache>(a); }
