// Attention over the coded keys of one span: the queries of its rows, rounded, and its tiles.
// Included inside the anonymous namespace of a file, after code_tiles.inl and hadamard.inl.

struct CodedChunk {
  AttendRow rows[kChunkRows];  // with the keys of one unit
  CodedQuery queries[kChunkRows];
  int64_t count;
  int64_t first_row;                          // the chunk's first row in the call
  alignas(64) float states[2][kChunkFloats];  // of all earlier units, and of one unit
  alignas(64) int8_t parts[kParts * kChunkFloats];
  int32_t corrections[kChunkFloats / kGroupValues];
  float turned[kChunkFloats];
};

// One tile of keys for `count` rows, 1 to kTileRows. coded: a coded block's exact side, as
// arguments of exact_tiles.
inline void attend_coded_tile(const ExactTiles& exact_tiles, const CodedAttendArgs& c,
                              const AttendArgs& coded, const AttendRow* rows,
                              const CodedQuery* queries, int count, float* states, int64_t tile) {
  KeyRange range;
  if (!range_of(rows, count, tile, range)) return;
  alignas(64) Probabilities p;
  const CodeTiles* keys = code_tiles(c.key_codec);
  if (keys == nullptr) {
    exact_tiles.score[count - 1](coded, rows, range, p);
  } else {
    keys->score[count - 1](c, rows, queries, range, p);
  }
  if (changes_scores(c.exact)) change_scores(c.exact, range, rows, count, p);
  alignas(64) float rescale[kLane];
  soften(coded, range, rows, count, states, p, rescale, [&](int row) {
    if (keys != nullptr) fetch_later_keys(c, range, row, count);
  });
  float* out = states + kStateHead;
  const CodeTiles* values = code_tiles(c.value_codec);
  if (values == nullptr) {
    exact_tiles.add[count - 1](coded, rows, range, rescale, p, out);
  } else {
    values->add[count - 1](c, rows, range, rescale, p, out);
  }
}

// Like attend_span, over a span's coded keys.
inline void attend_coded_span(const ExactTiles& exact_tiles, const CodedAttendArgs& c,
                              const CodedChunk& chunk, int64_t span, float* states) {
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
      attend_coded_tile(exact_tiles, c, coded, rows + row, chunk.queries + row, tile_rows,
                        states + row * state_floats(coded), tile);
      row += tile_rows;
    }
  }
}

inline float product_with(const float* centre, const float* q, int64_t n) {
  Lanes sum = zero();
  int64_t i = 0;
  for (; i + kLane <= n; i += kLane) sum = fma(load(q + i), load(centre + i), sum);
  if (i < n) sum = fma(load_part(q + i, n - i), load(centre + i), sum);
  return fold_add(sum);
}

// Rounds the query of one row. x: (coded_dim), the query padded and rotated; overwritten. With one
// byte a coordinate, only `high` is used.
inline void round_query(const CodedAttendArgs& c, float* x, int8_t* high, int8_t* low,
                        int32_t* corrections, CodedQuery& query) {
  const bool grouped = is_grouped(c.key_codec);
  const float most = grouped ? kPartsLargest : 127.0f;
  float largest = 0.0f;
  for (int64_t i = 0; i < c.coded_dim; i += 2 * kLane) {
    const float two = largest_magnitude(load(x + i), load(x + i + kLane));
    largest = two <= largest ? largest : two;  // takes a NaN and keeps it
    if (two != two) break;
  }
  const bool finite = largest < kInfinity, empty = largest < kPartsLeast;
  const Lanes inverse = set(!finite || empty ? 0.0f : most / largest);
  query.scale = empty ? 0.0f : finite ? largest / most : __builtin_nanf("");
  // Adding 1.5 * 2^23 rounds to an integer, to nearest even.
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

inline void prepare_queries(const CodedAttendArgs& c, CodedChunk& chunk) {
  const AttendArgs& a = c.exact;
  if (c.key_codec == KvCodec::exact) return;
  alignas(64) float x[kMostRotated];
  for (int64_t r = 0; r < chunk.count; ++r) {
    const float* q = row_of(a, chunk.first_row + r).q;
    CodedQuery& query = chunk.queries[r];
    query.centre = c.centre != nullptr ? product_with(c.centre, q, a.head_dim) : 0.0f;
    for (int64_t i = 0; i < c.coded_dim; ++i) x[i] = i < a.head_dim ? q[i] : 0.0f;
    if (is_rotated(c.key_codec)) hadamard(x, c.coded_dim);
    int8_t* parts = chunk.parts + r * kParts * c.coded_dim;
    int32_t* corrections = chunk.corrections + r * (c.coded_dim / kGroupValues);
    round_query(c, x, parts, parts + c.coded_dim, corrections, query);
    query.parts[0] = parts;
    query.parts[1] = parts + c.coded_dim;
    query.corrections = corrections;
  }
}
