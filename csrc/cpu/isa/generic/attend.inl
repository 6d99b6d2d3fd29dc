// Causal attention over exact keys and values in plain loops: the reference for
// templates/spans.inl. Included inside the anonymous namespace of a file, after numbers.inl.

// The first key that the token at `position` sees.
inline int64_t first_key_of(const AttendArgs& a, int64_t position) {
  const int64_t in_window = a.window > 0 && a.window <= position ? position - a.window + 1 : 0;
  const int64_t in_chunk = a.chunk > 0 ? position / a.chunk * a.chunk : 0;
  return std::max(in_window, in_chunk);
}

// One query head of one token.
struct AttendRow {
  const float* q;    // (head_dim)
  int64_t position;  // from which a slope counts
  int64_t head;      // of the group
};

// The logit of a scaled score.
inline float logit_of(const AttendArgs& a, const AttendRow& row, int64_t key, float score) {
  score = soft_capped(score, a.softcap);
  if (a.alibi_slopes == nullptr) return score;
  return fused(a.alibi_slopes[row.head], static_cast<float>(key - row.position), score);
}

// The softmax over keys [first_key, last_key], all of one span. state: see AttendArgs.
template <class Element>
void attend_span(const AttendArgs& a, const AttendRow& row, int64_t first_key, int64_t last_key,
                 float* state) {
  float& row_max = state[0];
  float* sum = state + kLane;
  float* out = state + kStateHead;  // (value_dim), not yet divided by the sum
  row_max = -INFINITY;
  std::fill(sum, out + a.value_dim, 0.0f);
  for (int64_t tile = first_key / kTileKeys; tile <= last_key / kTileKeys; ++tile) {
    const int64_t tile_begin = tile * kTileKeys;
    const int64_t begin = std::max(first_key, tile_begin);
    const int64_t end = std::min(last_key + 1, tile_begin + kTileKeys);
    float p[kTileKeys];
    float tile_max = -INFINITY;
    for (int64_t key = begin; key < end; ++key) {
      const char* block = static_cast<const char*>(a.blocks[key / kBlockTokens]);
      const Element* keys = reinterpret_cast<const Element*>(block + a.k_offset);  // (head_dim, 16)
      float score = 0.0f;
      for (int64_t d = 0; d < a.head_dim; ++d) {
        score = fused(as_float(keys[d * kBlockTokens + key % kBlockTokens]), row.q[d], score);
      }
      score = logit_of(a, row, key, score * a.scale);
      p[key - tile_begin] = score;
      if (score > tile_max) tile_max = score;
    }
    if (tile_max > row_max) {
      const float rescale = exponential(row_max - tile_max);
      for (int64_t lane = 0; lane < kLane; ++lane) sum[lane] *= rescale;
      for (int64_t d = 0; d < a.value_dim; ++d) out[d] *= rescale;
      row_max = tile_max;
    }
    for (int64_t key = begin; key < end; ++key) {
      const char* block = static_cast<const char*>(a.blocks[key / kBlockTokens]);
      const Element* value = reinterpret_cast<const Element*>(block + a.v_offset) +
                             (key % kBlockTokens) * a.v_stride;  // (value_dim)
      const float weight = exponential(p[key - tile_begin] - row_max);
      sum[key % kLane] += weight;
      for (int64_t d = 0; d < a.value_dim; ++d) out[d] = fused(as_float(value[d]), weight, out[d]);
    }
  }
}

// Merges the state of the next span into the state of the spans before it.
inline void merge_states(const AttendArgs& a, float* state, const float* next) {
  const float highest = std::max(state[0], next[0]);
  const float old_factor = exponential(state[0] - highest);
  const float new_factor = exponential(next[0] - highest);
  state[0] = highest;
  for (int64_t i = kLane; i < kStateHead + a.value_dim; ++i) {
    state[i] = fused(next[i], new_factor, state[i] * old_factor);
  }
}

inline void write_row(const AttendArgs& a, int64_t head, const float* state, float* out) {
  float lanes[kLane];
  std::copy(state + kLane, state + kStateHead, lanes);
  float total = fold_add(lanes), old_factor = 1.0f;
  if (a.sink_logits != nullptr) {
    const float highest = std::max(state[0], a.sink_logits[head]);
    old_factor = exponential(state[0] - highest);
    total = fused(total, old_factor, exponential(a.sink_logits[head] - highest));
  }
  for (int64_t d = 0; d < a.value_dim; ++d) out[d] = state[kStateHead + d] * old_factor / total;
}

// body(first_key, last_key, index, row, out) for every query head of every token.
template <class Body>
void over_heads(const AttendArgs& a, const Body& body) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    for (int64_t h = 0; h < a.group; ++h) {
      const int64_t position = a.first_position + t;
      body(first_key_of(a, position), position, t * a.group + h,
           AttendRow{a.q + t * a.q_stride + h * a.head_dim, position, h},
           a.out + t * a.out_stride + h * a.value_dim);
    }
  }
}

inline float* state_of(const AttendArgs& a, int64_t span, int64_t row) {
  const int64_t rows = a.tokens * a.group;
  return a.states + ((span - a.first_span) * rows + row) * (kStateHead + a.state_width);
}

template <class Element>
void attend(const AttendArgs& a) {
  float merged[kMostStateFloats], next[kMostStateFloats];
  over_heads(a, [&](int64_t first_key, int64_t last_key, int64_t index, const AttendRow& row,
                    float* out) {
    const int64_t first = first_key / kSpanKeys;
    for (int64_t span = first; span <= last_key / kSpanKeys; ++span) {
      if (a.states != nullptr && (span < a.first_span || span >= a.end_span)) continue;
      attend_span<Element>(a, row, std::max(first_key, span * kSpanKeys),
                           std::min(last_key, span * kSpanKeys + kSpanKeys - 1),
                           a.states != nullptr ? state_of(a, span, index)
                           : span == first     ? merged
                                               : next);
      if (a.states == nullptr && span > first) merge_states(a, merged, next);
    }
    if (a.states == nullptr) write_row(a, row.head, merged, out);
  });
}

inline void merge_spans(const AttendArgs& a) {
  over_heads(a, [&](int64_t first_key, int64_t last_key, int64_t index, const AttendRow& row,
                    float* out) {
    float* const merged = state_of(a, first_key / kSpanKeys, index);
    for (int64_t span = first_key / kSpanKeys + 1; span <= last_key / kSpanKeys; ++span) {
      merge_states(a, merged, state_of(a, span, index));
    }
    write_row(a, row.head, merged, out);
  });
}
