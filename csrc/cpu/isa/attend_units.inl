// Causal attention where some blocks are seen as codes or where there are sinks: the units of
// cpu/kernels.h (CodedAttendArgs), each a softmax, and how they are merged. Included inside the
// anonymous namespace of each file that has included attend_codes.inl, attend_spans.inl and
// hadamard.inl; knows nothing of registers, nor of who computes which unit.

bool rotated(Codes codes) { return codes != Codes::exact && codes != Codes::q4_0; }

struct CodedChunk {
  AttendRow rows[kChunkRows];  // with the keys of one unit
  CodedQuery queries[kChunkRows];
  int64_t count;
  int64_t first_row;                          // of the call
  alignas(64) float states[2][kChunkFloats];  // of one unit, and of those before it
  alignas(64) int8_t parts[kParts * kChunkFloats];
  int32_t corrections[kChunkFloats / kGroupValues];
  float turned[kChunkFloats];
};

// What to do with a tile by how the two sides of a coded block are stored.
template <class Cache, int kRows>
void score_side(const CodedAttendArgs& c, const AttendArgs& coded, const AttendRow* rows,
                const CodedQuery* queries, const KeyRange& range, Probabilities& p) {
  switch (c.key_codes) {
    case Codes::exact:
      return score_tile<Cache, kRows>(coded, rows, range, p);
    case Codes::int8:
      return score_coded_tile<Int8Codes, kRows>(c, rows, queries, range, p);
    case Codes::q4_0:
      return score_coded_tile<Q40Codes, kRows>(c, rows, queries, range, p);
    case Codes::turbo4:
      return score_coded_tile<Turbo4Codes, kRows>(c, rows, queries, range, p);
    case Codes::turbo3:
      return score_coded_tile<Turbo3Codes, kRows>(c, rows, queries, range, p);
    case Codes::turbo2:
      return score_coded_tile<Turbo2Codes, kRows>(c, rows, queries, range, p);
  }
}

template <class Cache, int kRows>
void add_side(const CodedAttendArgs& c, const AttendArgs& coded, const AttendRow* rows,
              const KeyRange& range, const float* rescale, const Probabilities& p, float* out) {
  switch (c.value_codes) {
    case Codes::exact:
      return add_tile_values<Cache, kRows>(coded, rows, range, rescale, p, out);
    case Codes::int8:
      return add_coded_tile<Int8Codes, kRows>(c, rows, range, rescale, p, out);
    case Codes::q4_0:
      return add_coded_tile<Q40Codes, kRows>(c, rows, range, rescale, p, out);
    case Codes::turbo4:
      return add_coded_tile<Turbo4Codes, kRows>(c, rows, range, rescale, p, out);
    case Codes::turbo3:
      return add_coded_tile<Turbo3Codes, kRows>(c, rows, range, rescale, p, out);
    case Codes::turbo2:
      return add_coded_tile<Turbo2Codes, kRows>(c, rows, range, rescale, p, out);
  }
}

template <class Cache, int kRows>
void attend_coded_tile(const CodedAttendArgs& c, const AttendArgs& coded, const AttendRow* rows,
                       const CodedQuery* queries, float* states, int64_t tile) {
  KeyRange range;
  if (!range_of<kRows>(rows, tile, range)) return;
  alignas(64) Probabilities p;
  score_side<Cache, kRows>(c, coded, rows, queries, range, p);
  alignas(64) float rescale[kLane];
  soften<kRows>(coded, range, rows, states, p, rescale, [&](int row) {
    if (c.key_codes != Codes::exact) fetch_later_keys(c, range, row, kRows);
  });
  add_side<Cache, kRows>(c, coded, rows, range, rescale, p, states + kStateHead);
}

// The same walk as attend_span, over a span's coded keys.
template <class Cache>
void attend_coded_span(const CodedAttendArgs& c, const CodedChunk& chunk, int64_t span,
                       float* states) {
  using TileFunction = void (*)(const CodedAttendArgs&, const AttendArgs&, const AttendRow*,
                                const CodedQuery*, float* states, int64_t tile);
  static constexpr TileFunction kTiles[kTileRows] = {
      attend_coded_tile<Cache, 1>, attend_coded_tile<Cache, 2>, attend_coded_tile<Cache, 3>,
      attend_coded_tile<Cache, 4>, attend_coded_tile<Cache, 5>, attend_coded_tile<Cache, 6>};
  // What the exact side of a coded block is to attend_tiles.inl.
  AttendArgs coded = c.exact;
  coded.blocks = c.coded;
  coded.k_offset = c.key_codes_offset;
  coded.v_offset = c.value_codes_offset;
  coded.first_position = c.coded_end * kBlockTokens - 1;
  coded.tokens = 1;
  coded.states = nullptr;
  const AttendRow* rows = chunk.rows;
  for (int64_t r = 0; r < chunk.count; ++r) clear_state(coded, states + r * state_floats(coded));
  constexpr int64_t kSpanTiles = kSpanKeys / kTileKeys;
  int64_t tile = span * kSpanTiles;
  if (rows[0].first_key / kTileKeys > tile) tile = rows[0].first_key / kTileKeys;
  const int64_t last_tile = rows[chunk.count - 1].last_key / kTileKeys;
  for (; tile <= last_tile; ++tile) {
    for (int64_t row = 0; row < chunk.count;) {
      const int tile_rows = next_tile_rows(chunk.count - row);
      kTiles[tile_rows - 1](c, coded, rows + row, chunk.queries + row,
                            states + row * state_floats(coded), tile);
      row += tile_rows;
    }
  }
}

float product_with(const float* centre, const float* q, int64_t n) {
  Lanes sum = zero();
  int64_t i = 0;
  for (; i + kLane <= n; i += kLane) sum = fma(load(q + i), load(centre + i), sum);
  if (i < n) sum = fma(load_part(q + i, n - i), load(centre + i), sum);
  return fold_add(sum);
}

// x: (coded_dim), the query padded and rotated; used up. With one byte a coordinate, high is it.
void round_query(const CodedAttendArgs& c, float* x, int8_t* high, int8_t* low,
                 int32_t* corrections, CodedQuery& query) {
  const bool grouped = c.key_codes == Codes::q4_0;
  const float most = grouped ? kPartsLargest : 127.0f;
  float largest = 0.0f;
  for (int64_t i = 0; i < c.coded_dim; i += 2 * kLane) {
    const float two = largest_magnitude(load(x + i), load(x + i + kLane));
    largest = two <= largest ? largest : two;  // a NaN is taken, and stays
    if (two != two) break;
  }
  const bool finite = largest < kInfinity, empty = largest < kPartsLeast;
  const Lanes inverse = set(!finite || empty ? 0.0f : most / largest);
  query.scale = empty ? 0.0f : finite ? largest / most : __builtin_nanf("");
  // The sum with 1.5 * 2^23 rounds to an integer, to nearest even.
  const Lanes shifter = set(12582912.0f);
  for (int64_t i = 0; i < c.coded_dim; i += kLane) {
    const Lanes rounded = sub(add(mul(load(x + i), inverse), shifter), shifter);
    store(x + i, finite ? rounded : zero());
  }
  const int64_t group = grouped ? kGroupValues : c.coded_dim;
  for (int64_t begin = 0; begin < c.coded_dim; begin += group) {
    int32_t sum = 0;
    for (int64_t i = begin; i < begin + group; ++i) {
      const int32_t n = static_cast<int32_t>(x[i]);
      const int32_t upper = grouped ? (n + 64) >> 7 : n;
      high[i] = static_cast<int8_t>(upper);
      low[i] = static_cast<int8_t>(n - 128 * upper);
      sum += n;
    }
    *corrections++ = -ByteDot::kZero * sum;
  }
}

void prepare_queries(const CodedAttendArgs& c, CodedChunk& chunk) {
  const AttendArgs& a = c.exact;
  if (c.key_codes == Codes::exact) return;
  alignas(64) float x[kMostRotated];
  for (int64_t r = 0; r < chunk.count; ++r) {
    const float* q = row_of(a, chunk.first_row + r).q;
    CodedQuery& query = chunk.queries[r];
    query.centre = c.centre != nullptr ? product_with(c.centre, q, a.head_dim) : 0.0f;
    for (int64_t i = 0; i < c.coded_dim; ++i) x[i] = i < a.head_dim ? q[i] : 0.0f;
    if (rotated(c.key_codes)) hadamard(x, c.coded_dim);
    int8_t* parts = chunk.parts + r * kParts * c.coded_dim;
    int32_t* corrections = chunk.corrections + r * (c.coded_dim / kGroupValues);
    round_query(c, x, parts, parts + c.coded_dim, corrections, query);
    query.parts[0] = parts;
    query.parts[1] = parts + c.coded_dim;
    query.corrections = corrections;
  }
}

int64_t coded_spans(const CodedAttendArgs& c) { return c.end_coded_span - c.first_coded_span; }
int64_t sink_unit(const CodedAttendArgs& c) { return coded_spans(c); }
int64_t block_0_unit(const CodedAttendArgs& c) { return coded_spans(c) + 1; }
int64_t tail_units(const CodedAttendArgs& c) { return coded_spans(c) + 2; }
int64_t all_units(const CodedAttendArgs& c) {
  return tail_units(c) + c.end_tail_span - c.first_tail_span;
}

// A row of the call with what it sees of a unit: nothing where its first key is behind its last.
AttendRow row_of_unit(const CodedAttendArgs& c, int64_t index, int64_t unit) {
  AttendRow row = row_of(c.exact, index);
  const int64_t position = row.last_key, window = c.exact.window;
  const bool sinking = c.sink_tokens > 0 && window > 0 && position >= window + c.sink_tokens;
  if (c.sink_tokens > 0 && !sinking) row.first_key = 0;
  const bool any_coded = c.coded_begin < c.coded_end;
  const auto cut = [&](int64_t begin, int64_t end) {
    if (row.first_key < begin) row.first_key = begin;
    if (row.last_key >= end) row.last_key = end - 1;
  };
  if (unit < coded_spans(c)) {
    const int64_t begin = (c.first_coded_span + unit) * kSpanKeys;
    cut(c.coded_begin * kBlockTokens, c.coded_end * kBlockTokens);
    cut(begin, begin + kSpanKeys);
  } else if (unit == sink_unit(c)) {
    row.first_key = 0;
    row.last_key = sinking ? c.sink_tokens - 1 : -1;
  } else if (unit == block_0_unit(c)) {
    cut(0, any_coded && c.coded_begin > 0 ? kBlockTokens : 0);
  } else {
    const int64_t begin = (c.first_tail_span + unit - tail_units(c)) * kSpanKeys;
    if (any_coded) cut(c.coded_end * kBlockTokens, position + 1);
    cut(begin, begin + kSpanKeys);
  }
  return row;
}

void turn_query(const CodedAttendArgs& c, int64_t token, const float* q, float* turned) {
  const int64_t half = c.exact.head_dim / 2;
  const float* cosines = c.sink_cosines + token * half;
  const float* sines = c.sink_sines + token * half;
  for (int64_t i = 0; i < half; ++i) {
    turned[i] = q[i] * cosines[i] - q[i + half] * sines[i];
    turned[i + half] = q[i + half] * cosines[i] + q[i] * sines[i];
  }
}

// Block 0 and the tail's first tile, which come after the codes. Many rows leave memory time
// enough.
template <class Cache>
__attribute__((always_inline)) inline void fetch_exact(const CodedAttendArgs& c, int64_t rows) {
  const AttendArgs& a = c.exact;
  if (rows > kTileRows) return;
  const int64_t end = (a.first_position + a.tokens - 1) / kBlockTokens + 1;
  const int64_t bytes = a.v_offset - a.k_offset + kBlockTokens * a.v_stride * Cache::kElementBytes;
  for (int64_t i = c.coded_begin > 0 ? -1 : 0; i < kTileBlocks; ++i) {
    const int64_t block = i < 0 ? 0 : c.coded_end + i;
    if (block >= end) break;
    for (int64_t at = 0; at < bytes; at += kLaneBytes) {
      fetch<Fetch::kToL2>(block_bytes(a, block) + a.k_offset + at);
    }
  }
}

// The states of one unit, from nothing. chunk.rows are that unit's afterwards.
template <class Cache>
void attend_unit(const CodedAttendArgs& c, CodedChunk& chunk, int64_t unit, float* states) {
  const AttendArgs& a = c.exact;
  for (int64_t r = 0; r < chunk.count; ++r) {
    chunk.rows[r] = row_of_unit(c, chunk.first_row + r, unit);
  }
  // Where no row looks there may be no block.
  int64_t first = 0;
  while (first < chunk.count && chunk.rows[first].first_key > chunk.rows[first].last_key) ++first;
  if (first == chunk.count) return;
  if (unit < coded_spans(c)) {
    if (unit + 1 == coded_spans(c)) fetch_exact<Cache>(c, chunk.count);
    return attend_coded_span<Cache>(c, chunk, c.first_coded_span + unit, states);
  }
  if (unit != sink_unit(c)) {
    const int64_t tail = unit - tail_units(c);
    const int64_t span = unit == block_0_unit(c) ? 0 : c.first_tail_span + tail;
    return attend_span<Cache>(a, chunk.rows, chunk.count, span, states);
  }
  // Those that see sinks are the last ones, and have a query of their own for them.
  for (int64_t r = first; r < chunk.count; ++r) {
    float* turned = chunk.turned + r * a.head_dim;
    turn_query(c, (chunk.first_row + r) / a.group, chunk.rows[r].q, turned);
    chunk.rows[r].q = turned;
  }
  attend_span<Cache>(a, chunk.rows + first, chunk.count - first, 0,
                     states + first * state_floats(a));
}

// Takes a unit's states into those of the units before it. begun: whether a row has any.
void merge_unit(const CodedAttendArgs& c, const AttendRow* rows, int64_t count, const float* states,
                bool* begun, float* merged) {
  const int64_t stride = state_floats(c.exact);
  for (int64_t begin = 0; begin < count; begin += kLane) {
    const int64_t some = count - begin < kLane ? count - begin : kLane;
    // Sixteen rows' factors at once, as in carry_states.
    alignas(64) float highest[kLane], old_factor[kLane] = {}, new_factor[kLane] = {};
    bool merges[kLane];
    for (int64_t r = 0; r < some; ++r) {
      const AttendRow& row = rows[begin + r];
      const float* next = states + (begin + r) * stride;
      float* earlier = merged + (begin + r) * stride;
      const bool sees = row.first_key <= row.last_key;
      merges[r] = sees && begun[begin + r];
      if (sees && !begun[begin + r]) {
        for (int64_t i = 0; i < stride; i += kLane) store(earlier + i, load(next + i));
        begun[begin + r] = true;
      }
      if (!merges[r]) continue;
      highest[r] = earlier[0] < next[0] ? next[0] : earlier[0];
      old_factor[r] = earlier[0] - highest[r];
      new_factor[r] = next[0] - highest[r];
    }
    store(old_factor, exponential(load(old_factor)));
    store(new_factor, exponential(load(new_factor)));
    for (int64_t r = 0; r < some; ++r) {
      if (!merges[r]) continue;
      const float* next = states + (begin + r) * stride;
      float* earlier = merged + (begin + r) * stride;
      const Lanes old_scale = set(old_factor[r]), new_scale = set(new_factor[r]);
      for (int64_t i = kLane; i < stride; i += kLane) {
        store(earlier + i, fma(load(next + i), new_scale, mul(load(earlier + i), old_scale)));
      }
      earlier[0] = highest[r];
    }
  }
}

// All units of a chunk's rows, to `out`. states_of_unit(unit): the states, chunk.rows being set.
template <class States>
void fold_units(const CodedAttendArgs& c, CodedChunk& chunk, const States& states_of_unit) {
  bool begun[kChunkRows] = {};
  float* merged = chunk.states[0];
  for (int64_t unit = 0; unit < all_units(c); ++unit) {
    if (unit == coded_spans(c) && rotated(c.value_codes)) {
      for (int64_t r = 0; r < chunk.count; ++r) {
        if (!begun[r]) continue;
        inverse_hadamard(merged + r * state_floats(c.exact) + kStateHead, c.coded_dim);
      }
    }
    const float* states = states_of_unit(unit);
    merge_unit(c, chunk.rows, chunk.count, states, begun, merged);
  }
  for (int64_t r = 0; r < chunk.count; ++r) {
    write_row(c.exact, chunk.first_row + r, merged + r * state_floats(c.exact));
  }
}

// body(chunk) for runs of rows whose states fit a chunk.
template <class Body>
void over_chunks(const CodedAttendArgs& c, CodedChunk& chunk, const Body& body) {
  const int64_t rows = c.exact.tokens * c.exact.group;
  int64_t most = kChunkFloats / state_floats(c.exact);
  if (most > kChunkRows) most = kChunkRows;
  for (chunk.first_row = 0; chunk.first_row < rows; chunk.first_row += chunk.count) {
    chunk.count = rows - chunk.first_row < most ? rows - chunk.first_row : most;
    body();
  }
}

float* states_of_unit(const CodedAttendArgs& c, const CodedChunk& chunk, int64_t unit) {
  const int64_t rows = c.exact.tokens * c.exact.group;
  return c.states + ((unit - c.first_unit) * rows + chunk.first_row) * state_floats(c.exact);
}

template <class Cache>
void attend_coded(const CodedAttendArgs& c) {
  CodedChunk chunk;
  over_chunks(c, chunk, [&] {
    if (coded_spans(c) > 0) prepare_queries(c, chunk);
    if (c.states == nullptr) {
      fold_units(c, chunk, [&](int64_t unit) {
        attend_unit<Cache>(c, chunk, unit, chunk.states[1]);
        return chunk.states[1];
      });
      return;
    }
    for (int64_t unit = c.first_unit; unit < c.end_unit; ++unit) {
      attend_unit<Cache>(c, chunk, unit, states_of_unit(c, chunk, unit));
    }
  });
}

void merge_units(const CodedAttendArgs& c) {
  CodedChunk chunk;
  over_chunks(c, chunk, [&] {
    fold_units(c, chunk, [&](int64_t unit) {
      for (int64_t r = 0; r < chunk.count; ++r) {
        chunk.rows[r] = row_of_unit(c, chunk.first_row + r, unit);
      }
      return states_of_unit(c, chunk, unit);
    });
  });
}

void attend_coded_f32(const CodedAttendArgs& c) { attend_coded<F32Cache>(c); }
void attend_coded_f16(const CodedAttendArgs& c) { attend_coded<F16Cache>(c); }
void attend_coded_bf16(const CodedAttendArgs& c) { attend_coded<Bf16Cache>(c); }
