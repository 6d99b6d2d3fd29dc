// Attention where some blocks are codes or where there are sinks: the units of
// cpu/coded_attend_args.h, each a softmax, and how they are merged. Included inside the anonymous
// namespace of a file, after coded_spans.inl. The file defines kExactF32, kExactF16 and kExactBf16.

inline int64_t coded_spans(const CodedAttendArgs& c) {
  return c.end_coded_span - c.first_coded_span;
}
inline int64_t sink_unit(const CodedAttendArgs& c) { return coded_spans(c); }
inline int64_t block_0_unit(const CodedAttendArgs& c) { return coded_spans(c) + 1; }
inline int64_t tail_units(const CodedAttendArgs& c) { return coded_spans(c) + 2; }
inline int64_t all_units(const CodedAttendArgs& c) {
  return tail_units(c) + c.end_tail_span - c.first_tail_span;
}

// A row of the call, with the keys that it sees in a unit. It sees none if first_key > last_key.
inline AttendRow row_of_unit(const CodedAttendArgs& c, int64_t index, int64_t unit) {
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
    row.position = window + c.sink_tokens - 1;  // where the turned query stands
  } else if (unit == block_0_unit(c)) {
    cut(0, any_coded && c.coded_begin > 0 ? kBlockTokens : 0);
  } else {
    const int64_t begin = (c.first_tail_span + unit - tail_units(c)) * kSpanKeys;
    if (any_coded) cut(c.coded_end * kBlockTokens, position + 1);
    cut(begin, begin + kSpanKeys);
  }
  return row;
}

inline void turn_query(const CodedAttendArgs& c, int64_t token, const float* q, float* turned) {
  const int64_t half = c.exact.head_dim / 2;
  const float* cosines = c.sink_cosines + token * half;
  const float* sines = c.sink_sines + token * half;
  for (int64_t i = 0; i < half; ++i) {
    turned[i] = q[i] * cosines[i] - q[i + half] * sines[i];
    turned[i + half] = q[i + half] * cosines[i] + q[i] * sines[i];
  }
}

// Prefetches block 0 and the tail's first tile, which follow the codes. With many rows the
// arithmetic takes long enough without it.
inline void fetch_exact(const ExactTiles& tiles, const CodedAttendArgs& c, int64_t rows) {
  const AttendArgs& a = c.exact;
  if (rows > kTileRows) return;
  const int64_t end = (a.first_position + a.tokens - 1) / kBlockTokens + 1;
  const int64_t bytes = a.v_offset - a.k_offset + kBlockTokens * a.v_stride * tiles.element_bytes;
  for (int64_t i = c.coded_begin > 0 ? -1 : 0; i < kTileBlocks; ++i) {
    const int64_t block = i < 0 ? 0 : c.coded_end + i;
    if (block >= end) break;
    for (int64_t at = 0; at < bytes; at += kLaneBytes) {
      fetch<Fetch::kToL2>(block_bytes(a, block) + a.k_offset + at);
    }
  }
}

// Writes the states of one unit, from nothing. Sets chunk.rows to what the rows see of it.
inline void attend_unit(const ExactTiles& tiles, const CodedAttendArgs& c, CodedChunk& chunk,
                        int64_t unit, float* states) {
  const AttendArgs& a = c.exact;
  for (int64_t r = 0; r < chunk.count; ++r) {
    chunk.rows[r] = row_of_unit(c, chunk.first_row + r, unit);
  }
  // If no row sees any key, there may be no block.
  int64_t first = 0;
  while (first < chunk.count && chunk.rows[first].first_key > chunk.rows[first].last_key) ++first;
  if (first == chunk.count) return;
  if (unit < coded_spans(c)) {
    if (unit + 1 == coded_spans(c)) fetch_exact(tiles, c, chunk.count);
    return attend_coded_span(tiles, c, chunk, c.first_coded_span + unit, states);
  }
  if (unit != sink_unit(c)) {
    const int64_t tail = unit - tail_units(c);
    const int64_t span = unit == block_0_unit(c) ? 0 : c.first_tail_span + tail;
    return tiles.span(a, chunk.rows, chunk.count, span, states);
  }
  // The rows that see the sinks are the last ones, and use a turned query for them.
  for (int64_t r = first; r < chunk.count; ++r) {
    float* turned = chunk.turned + r * a.head_dim;
    turn_query(c, (chunk.first_row + r) / a.group, chunk.rows[r].q, turned);
    chunk.rows[r].q = turned;
  }
  tiles.span(a, chunk.rows + first, chunk.count - first, 0, states + first * state_floats(a));
}

// Merges a unit's states into the states of earlier units. begun: whether a row has any of these.
inline void merge_unit(const CodedAttendArgs& c, const AttendRow* rows, int64_t count,
                       const float* states, bool* begun, float* merged) {
  const int64_t stride = state_floats(c.exact);
  for (int64_t begin = 0; begin < count; begin += kLane) {
    const int64_t some = count - begin < kLane ? count - begin : kLane;
    // The factors of sixteen rows at once: one by one, exp would cost more than all the rest.
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

// Merges all units of a chunk's rows and writes `out`. states_of_unit(unit) sets chunk.rows and
// returns the unit's states.
template <class States>
void fold_units(const CodedAttendArgs& c, CodedChunk& chunk, const States& states_of_unit) {
  bool begun[kChunkRows] = {};
  float* merged = chunk.states[0];
  for (int64_t unit = 0; unit < all_units(c); ++unit) {
    if (unit == coded_spans(c) && is_rotated(c.value_codec)) {
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

// Runs body() for runs of rows whose states fit a chunk.
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

inline float* states_of_unit(const CodedAttendArgs& c, const CodedChunk& chunk, int64_t unit) {
  const int64_t rows = c.exact.tokens * c.exact.group;
  return c.states + ((unit - c.first_unit) * rows + chunk.first_row) * state_floats(c.exact);
}

inline void attend_coded(const ExactTiles& tiles, const CodedAttendArgs& c) {
  CodedChunk chunk;
  over_chunks(c, chunk, [&] {
    if (coded_spans(c) > 0) prepare_queries(c, chunk);
    if (c.states == nullptr) {
      fold_units(c, chunk, [&](int64_t unit) {
        attend_unit(tiles, c, chunk, unit, chunk.states[1]);
        return chunk.states[1];
      });
      return;
    }
    for (int64_t unit = c.first_unit; unit < c.end_unit; ++unit) {
      attend_unit(tiles, c, chunk, unit, states_of_unit(c, chunk, unit));
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

void attend_coded_f32(const CodedAttendArgs& c) { attend_coded(kExactF32, c); }
void attend_coded_f16(const CodedAttendArgs& c) { attend_coded(kExactF16, c); }
void attend_coded_bf16(const CodedAttendArgs& c) { attend_coded(kExactBf16, c); }
