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
  alignas(64) float states[2][kChunkFloats];  // (rows, state): of this span and of those before it
};

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

// Into the states of a span goes what its rows have from the spans before it. earlier, states:
// (count, state) of the previous and of this span.
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

void write_row(const AttendArgs& a, int64_t index, const float* state) {
  const Lanes sum = set(fold_add(load(state + kLane)));
  const float* values = state + kStateHead;
  float* out = a.out + index / a.group * a.out_stride + index % a.group * a.head_dim;
  int64_t i = 0;
  for (; i + kLane <= a.head_dim; i += kLane) store(out + i, div(load(values + i), sum));
  if (i < a.head_dim) store_part(out + i, div(load(values + i), sum), a.head_dim - i);
}

// The states of one span, from nothing; a row that sees none of it keeps that.
template <class Cache>
void attend_span(const AttendArgs& a, const AttendRow* rows, int64_t count, int64_t span,
                 float* states) {
  using TileFunction = void (*)(const AttendArgs&, const AttendRow*, float* states, int64_t tile);
  static constexpr TileFunction kTiles[kTileRows] = {attend_tile<Cache, 1>, attend_tile<Cache, 2>,
                                                     attend_tile<Cache, 3>, attend_tile<Cache, 4>,
                                                     attend_tile<Cache, 5>, attend_tile<Cache, 6>};
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
      kTiles[tile_rows - 1](a, rows + row, states + row * state_floats(a), tile);
      row += tile_rows;
    }
  }
}

// All spans of rows [begin, begin + count) of the call, to `out`.
template <class Cache>
void attend_chunk(const AttendArgs& a, AttendChunk& chunk, int64_t begin, int64_t count) {
  const int64_t first_span = chunk.rows[0].first_key / kSpanKeys;
  const int64_t last_span = chunk.rows[count - 1].last_key / kSpanKeys;
  float* states = chunk.states[0];
  float* earlier = chunk.states[1];
  attend_span<Cache>(a, chunk.rows, count, first_span, states);
  for (int64_t span = first_span + 1; span <= last_span; ++span) {
    float* const walked = states;
    states = earlier;
    earlier = walked;
    attend_span<Cache>(a, chunk.rows, count, span, states);
    carry_states(a, chunk.rows, count, span, earlier, states);
  }
  for (int64_t r = 0; r < count; ++r) write_row(a, begin + r, states + r * state_floats(a));
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
      attend_span<Cache>(a, chunk.rows, count, span, states_of(a, span, begin));
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

void attend_f32(const AttendArgs& a) { attend<F32Cache>(a); }
void attend_f16(const AttendArgs& a) { attend<F16Cache>(a); }
void attend_bf16(const AttendArgs& a) { attend<Bf16Cache>(a); }
