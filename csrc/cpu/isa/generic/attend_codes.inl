// Causal attention over coded keys and values, and with sinks, in plain loops: the reference for
// templates/units.inl. Included inside the anonymous namespace of a file, after attend.inl and
// rotation.inl.

constexpr int64_t kMostCodedDim = 576;  // of the largest head_dim
constexpr float kByteLargest = 127.0f;
constexpr float kPartsLargest = 16256.0f;  // 127 * 128: two signed bytes
constexpr float kPartsLeast = 0x1p-100f;

// Byte `at` of register r of the keys or values of a block and head.
inline int code_integer(const uint8_t* stored, KvCodec codec, bool keys, int64_t coded_dim, int64_t r,
                        int64_t at) {
  const int8_t* integers = codec_info(codec).book.integers;
  if (code_bits(codec) == 8) {
    return keys ? stored[r * 64 + at] - 128 : static_cast<int8_t>(stored[r * 64 + at]);
  }
  if (code_bits(codec) == 4) {
    const int code = r % 2 == 0 ? stored[r / 2 * 64 + at] & 15 : stored[r / 2 * 64 + at] >> 4;
    return integers == nullptr ? code - 8 : integers[code];
  }
  int code = stored[r / 4 * 64 + at] >> 2 * (r % 4) & 3;
  if (code_bits(codec) == 3) {
    code |= (stored[(coded_dim / 16 + r / 8) * 64 + at] >> r % 8 & 1) << 2;
  }
  return integers[code];
}

struct CodedBlock {
  const CodedAttendArgs& c;
  const uint8_t* bytes;
  CodedBlock(const CodedAttendArgs& args, int64_t block)
      : c(args), bytes(static_cast<const uint8_t*>(args.coded[block])) {}
  int key(int64_t token, int64_t d) const {
    return code_integer(bytes + c.key_codes_offset, c.key_codec, true, c.coded_dim, d / 4,
                        token * 4 + d % 4);
  }
  int value(int64_t token, int64_t d) const {
    return code_integer(bytes + c.value_codes_offset, c.value_codec, false, c.coded_dim,
                        token / 4 * (c.coded_dim / 16) + d / 16, d % 16 * 4 + token % 4);
  }
  float scale(int64_t offset, int64_t group, int64_t token) const {
    return as_float(reinterpret_cast<const F16*>(bytes + offset)[group * kBlockTokens + token]);
  }
  float key_scale(int64_t g, int64_t token) const { return scale(c.key_scales_offset, g, token); }
  float value_scale(int64_t g, int64_t token) const {
    return scale(c.value_scales_offset, g, token);
  }
};

// Numbers of at most `largest` magnitude become integers of at most `most`, times `scale`.
struct Parts {
  float inverse;
  float scale;
  Parts(float largest, float most) {
    const bool empty = largest < kPartsLeast, finite = std::isfinite(largest);
    inverse = empty || !finite ? 0.0f : most / largest;
    scale = empty ? 0.0f : finite ? largest / most : NAN;
  }
  int integer(float x) const {
    return std::isnan(scale) ? 0 : static_cast<int>(std::nearbyint(x * inverse));
  }
};

// NaN if one of them is a NaN or an infinity.
inline float larger_magnitude(float largest, float x) {
  return std::isfinite(x) ? std::max(largest, std::fabs(x)) : NAN;
}

// A row's query, rounded for coded keys.
struct CodedQuery {
  AttendRow row;
  int integers[kMostCodedDim];
  float scale;
  float centre;
};

inline void prepare_query(const CodedAttendArgs& c, CodedQuery& query) {
  const float* q = query.row.q;
  query.centre = 0.0f;
  if (c.key_codec == KvCodec::exact) return;
  const AttendArgs& a = c.exact;
  if (c.centre != nullptr) {
    float lanes[kLane] = {};
    for (int64_t d = 0; d < a.head_dim; ++d) {
      lanes[d % kLane] = fused(q[d], c.centre[d], lanes[d % kLane]);
    }
    query.centre = fold_add(lanes);
  }
  float padded[kMostCodedDim] = {};
  std::copy_n(q, a.head_dim, padded);
  if (is_rotated(c.key_codec)) hadamard(padded, c.coded_dim);
  float largest = 0.0f;
  for (int64_t d = 0; d < c.coded_dim; ++d) largest = larger_magnitude(largest, padded[d]);
  const Parts parts(largest, is_grouped(c.key_codec) ? kPartsLargest : kByteLargest);
  query.scale = parts.scale;
  for (int64_t d = 0; d < c.coded_dim; ++d) query.integers[d] = parts.integer(padded[d]);
}

template <class Element>
float coded_score(const CodedAttendArgs& c, const CodedQuery& query, int64_t key) {
  const AttendArgs& a = c.exact;
  const CodedBlock block(c, key / kBlockTokens);
  const int64_t token = key % kBlockTokens;
  if (c.key_codec == KvCodec::exact) {
    const Element* keys = reinterpret_cast<const Element*>(block.bytes + c.key_codes_offset);
    float score = 0.0f;
    for (int64_t d = 0; d < a.head_dim; ++d) {
      score = fused(as_float(keys[d * kBlockTokens + token]), query.row.q[d], score);
    }
    return logit_of(a, query.row, key, score * a.scale);
  }
  const int64_t group = is_grouped(c.key_codec) ? kGroupValues : c.coded_dim;
  float sum = 0.0f;
  for (int64_t g = 0; g < c.coded_dim / group; ++g) {
    int dot = 0;
    for (int64_t d = g * group; d < (g + 1) * group; ++d) {
      dot += query.integers[d] * block.key(token, d);
    }
    sum = fused(static_cast<float>(dot), block.key_scale(g, token), sum);
  }
  return logit_of(a, query.row, key, (sum * query.scale + query.centre) * a.scale);
}

// out = out * rescale + p * values, over keys [begin, end) of a tile.
template <class Element>
void add_coded_values(const CodedAttendArgs& c, int64_t begin, int64_t end, const float* p,
                      float rescale, float* out) {
  if (c.value_codec == KvCodec::exact) {
    for (int64_t d = 0; d < c.exact.value_dim; ++d) out[d] *= rescale;
    for (int64_t key = begin; key < end; ++key) {
      const CodedBlock block(c, key / kBlockTokens);
      const Element* value = reinterpret_cast<const Element*>(block.bytes + c.value_codes_offset) +
                             key % kBlockTokens * c.exact.v_stride;
      for (int64_t d = 0; d < c.exact.value_dim; ++d) {
        out[d] = fused(as_float(value[d]), p[key - begin], out[d]);
      }
    }
    return;
  }
  const int64_t group = is_grouped(c.value_codec) ? kGroupValues : c.coded_dim;
  for (int64_t g = 0; g < c.coded_dim / group; ++g) {
    float weights[kTileKeys], largest = 0.0f;
    for (int64_t key = begin; key < end; ++key) {
      const CodedBlock block(c, key / kBlockTokens);
      weights[key - begin] = p[key - begin] * block.value_scale(g, key % kBlockTokens);
      largest = larger_magnitude(largest, weights[key - begin]);
    }
    const Parts parts(largest, kPartsLargest);
    for (int64_t d = g * group; d < (g + 1) * group; ++d) {
      int dot = 0;
      for (int64_t key = begin; key < end; ++key) {
        dot += parts.integer(weights[key - begin]) *
               CodedBlock(c, key / kBlockTokens).value(key % kBlockTokens, d);
      }
      out[d] = fused(static_cast<float>(dot), parts.scale, out[d] * rescale);
    }
  }
}

template <class Element>
void attend_coded_span(const CodedAttendArgs& c, const CodedQuery& query, int64_t first_key,
                       int64_t last_key, float* state) {
  state[0] = -INFINITY;
  for (int64_t tile = first_key / kTileKeys; tile <= last_key / kTileKeys; ++tile) {
    const int64_t begin = std::max(first_key, tile * kTileKeys);
    const int64_t end = std::min(last_key + 1, (tile + 1) * kTileKeys);
    float p[kTileKeys], highest = state[0];
    for (int64_t key = begin; key < end; ++key) {
      p[key - begin] = coded_score<Element>(c, query, key);
      if (p[key - begin] > highest) highest = p[key - begin];
    }
    const float rescale = highest > state[0] ? exponential(state[0] - highest) : 1.0f;
    state[0] = highest;
    for (int64_t lane = 0; lane < kLane; ++lane) state[kLane + lane] *= rescale;
    for (int64_t key = begin; key < end; ++key) {
      p[key - begin] = exponential(p[key - begin] - highest);
      state[kLane + key % kLane] += p[key - begin];
    }
    add_coded_values<Element>(c, begin, end, p, rescale, state + kStateHead);
  }
}

struct KeyRun {
  int64_t first;
  int64_t last;
  bool empty() const { return first > last; }
};

// The keys of a unit that the token at a position sees.
inline KeyRun keys_of_unit(const CodedAttendArgs& c, int64_t position, int64_t unit) {
  const int64_t window = c.exact.window;
  const bool sinking = c.sink_tokens > 0 && window > 0 && position >= window + c.sink_tokens;
  const int64_t first = c.sink_tokens > 0 && !sinking ? 0 : first_key_of(c.exact, position);
  const bool any_coded = c.coded_begin < c.coded_end;
  const int64_t coded_spans = c.end_coded_span - c.first_coded_span;
  if (unit < coded_spans) {
    const int64_t span = (c.first_coded_span + unit) * kSpanKeys;
    return {std::max({first, span, c.coded_begin * kBlockTokens}),
            std::min(span + kSpanKeys, c.coded_end * kBlockTokens) - 1};
  }
  if (unit == coded_spans) return {0, sinking ? c.sink_tokens - 1 : -1};
  if (unit == coded_spans + 1) {
    return {first, any_coded && c.coded_begin > 0 ? kBlockTokens - 1 : -1};
  }
  const int64_t span = (c.first_tail_span + unit - coded_spans - 2) * kSpanKeys;
  return {std::max({first, span, any_coded ? c.coded_end * kBlockTokens : 0}),
          std::min(span + kSpanKeys - 1, position)};
}

inline int64_t units_of(const CodedAttendArgs& c) {
  return c.end_coded_span - c.first_coded_span + 2 + c.end_tail_span - c.first_tail_span;
}

inline float* unit_state(const CodedAttendArgs& c, int64_t unit, int64_t row) {
  const int64_t rows = c.exact.tokens * c.exact.group;
  return c.states + ((unit - c.first_unit) * rows + row) * (kStateHead + c.exact.state_width);
}

template <class Element>
void attend_unit(const CodedAttendArgs& c, const CodedQuery& query, int64_t token, int64_t unit,
                 const KeyRun& keys, float* state) {
  std::fill_n(state, kStateHead + c.exact.state_width, 0.0f);
  const int64_t coded_spans = c.end_coded_span - c.first_coded_span;
  if (unit < coded_spans) {
    return attend_coded_span<Element>(c, query, keys.first, keys.last, state);
  }
  AttendRow row = query.row;
  float turned[kMostCodedDim];
  if (unit == coded_spans) {
    const int64_t half = c.exact.head_dim / 2;
    for (int64_t i = 0; i < half; ++i) {
      const float cosine = c.sink_cosines[token * half + i], sine = c.sink_sines[token * half + i];
      turned[i] = row.q[i] * cosine - row.q[i + half] * sine;
      turned[i + half] = row.q[i + half] * cosine + row.q[i] * sine;
    }
    row.q = turned;
    row.position = c.exact.window + c.sink_tokens - 1;
  }
  attend_span<Element>(c.exact, row, keys.first, keys.last, state);
}

// Merges the units of a row in order and writes its output. state(unit): the state of a unit that
// the row sees.
template <class State>
void fold_units(const CodedAttendArgs& c, const AttendRow& row, float* out, const State& state) {
  float merged[kMostStateFloats];
  bool begun = false;
  AttendArgs whole = c.exact;
  whole.value_dim = whole.state_width;
  const int64_t coded_spans = c.end_coded_span - c.first_coded_span;
  for (int64_t unit = 0; unit < units_of(c); ++unit) {
    if (unit == coded_spans && begun && is_rotated(c.value_codec)) {
      inverse_hadamard(merged + kStateHead, c.coded_dim);
    }
    if (keys_of_unit(c, row.position, unit).empty()) continue;
    const float* next = state(unit);
    if (begun) {
      merge_states(whole, merged, next);
    } else {
      std::copy_n(next, kStateHead + c.exact.state_width, merged);
    }
    begun = true;
  }
  write_row(c.exact, row.head, merged, out);
}

template <class Element>
void attend_coded(const CodedAttendArgs& c) {
  over_heads(c.exact, [&](int64_t, int64_t position, int64_t index, const AttendRow& row,
                          float* out) {
    CodedQuery query;
    query.row = row;
    if (c.coded_begin < c.coded_end) prepare_query(c, query);
    const int64_t token = index / c.exact.group;
    if (c.states != nullptr) {
      for (int64_t unit = c.first_unit; unit < c.end_unit; ++unit) {
        const KeyRun keys = keys_of_unit(c, position, unit);
        if (keys.empty()) continue;
        attend_unit<Element>(c, query, token, unit, keys, unit_state(c, unit, index));
      }
      return;
    }
    float next[kMostStateFloats];
    fold_units(c, row, out, [&](int64_t unit) {
      attend_unit<Element>(c, query, token, unit, keys_of_unit(c, position, unit), next);
      return static_cast<const float*>(next);
    });
  });
}

inline void merge_units(const CodedAttendArgs& c) {
  over_heads(c.exact, [&](int64_t, int64_t, int64_t index, const AttendRow& row, float* out) {
    fold_units(c, row, out, [&](int64_t unit) { return unit_state(c, unit, index); });
  });
}
