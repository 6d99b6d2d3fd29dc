// One tile of 64 coded keys or values of causal attention (cpu/coded_attend_args.h): products of
// bytes with the codes, which are unpacked in registers once for all rows of a register tile.
// Included inside the anonymous namespace of a file, after softmax.inl and code_formats.inl. Beside
// what byte_products.inl needs, the file defines
//   WeightDot, similar to ByteDot: add(sum, codes, weights), for codes that are signed bytes and
//     weights of 0 to 127;
//   of Words: times_128 and fold_words;
//   of Lanes: larger_magnitude, and store_parts, which rounds to two bytes.

constexpr int64_t kPairDims = 8;  // of keys
constexpr int64_t kGroupPairs = kGroupValues / kPairDims;
constexpr int64_t kVectorPair = 32;  // dimensions of a pair of values
constexpr int kParts = 2;            // bytes of a rounded weight, and the most of a query
constexpr float kPartsLargest = 16256.0f;
constexpr float kPartsLeast = 0x1p-100f;

// How many rows, and how many blocks, have registers for their integer sums beside a pair of codes
// of each block.
constexpr int code_rows(int parts) {
  return kLanesRegisters == 32 || parts == 1 ? kTileRows : kTileRows / 2;
}
constexpr int code_blocks(int rows, int parts) {
  return kLanesRegisters != 32 ? 1 : rows * parts <= 4 ? 4 : 2;
}

// Bytes of a query's coordinate.
template <class Format>
constexpr int query_parts() {
  return Format::kGrouped ? kParts : 1;
}

// The query of a row, rounded for products with coded keys.
struct CodedQuery {
  const int8_t* parts[kParts];  // (coded_dim) each, the high one first
  const int32_t* corrections;   // of each group: -ByteDot::kZero times the sum of the integers
  float scale;
  float centre;
};

const char* coded_bytes(const CodedAttendArgs& c, int64_t block) {
  return static_cast<const char*>(c.coded[block]);
}
// Where to prefetch from while `block` is used: the same place in the next tile or, after the last
// tile, in the next head's first tile, `next` bytes further, which this thread probably takes next.
const char* coded_ahead(const CodedAttendArgs& c, int64_t block, int64_t offset, int64_t next) {
  const int64_t ahead = block + kTileBlocks;
  if (ahead < c.coded_end) return coded_bytes(c, ahead) + offset;
  const int64_t first = c.first_coded_span * (kSpanKeys / kBlockTokens) + c.coded_begin;
  const int64_t other = first + ahead - c.coded_end;
  return coded_bytes(c, other < c.coded_end ? other : c.coded_end - 1) + offset + next;
}
// The next tile's codes are prefetched in small parts (tiles.inl): the keys of its first
// kEarlyBlocks blocks while keys are multiplied, the other keys while scores become weights; the
// values of the last block while weights are rounded, the other values while values are multiplied.
constexpr int64_t kEarlyBlocks = 2;

// Prefetches a part of the keys of a tile's later blocks.
__attribute__((always_inline)) inline void fetch_later_keys(const CodedAttendArgs& c,
                                                            const KeyRange& range, int part,
                                                            int parts) {
  const int64_t bytes = c.value_codes_offset - c.key_codes_offset;
  for (int64_t block = range.tile_block + kEarlyBlocks; block <= range.last_block; ++block) {
    fetch_part<Fetch::kToL2>(coded_ahead(c, block, c.key_codes_offset, c.next_codes), bytes, part,
                             parts);
  }
}
__attribute__((always_inline)) inline void fetch_last_values(const CodedAttendArgs& c,
                                                             const KeyRange& range) {
  const int64_t bytes = c.next_codes - (c.value_codes_offset - c.key_codes_offset);
  fetch_part<Fetch::kToL2>(coded_ahead(c, range.last_block, c.value_codes_offset, c.next_codes),
                           bytes, 0, 1);
}
// Prefetches a pair's share of the codes.
template <int kBits>
__attribute__((always_inline)) inline void fetch_pair(const char* codes, int64_t pair) {
  fetch<Fetch::kToL2>(codes + pair * kLane * kBits);
  if constexpr (kBits == 8) fetch<Fetch::kToL2>(codes + pair * kLane * kBits + kLaneBytes);
}

// Integer sums of queries and keys: of each row, block and part of the query.
template <class Format, int kRows, int kBlocks>
using KeySums = typename ByteDot::Sum[kRows][kBlocks][query_parts<Format>()];

// sum = the products over pairs [first, end), of a group's scale.
template <class Format, int kRows, int kBlocks>
__attribute__((always_inline)) inline void multiply_keys(
    const CodedAttendArgs& c, const Format& format, const CodedQuery* queries,
    const char* const (&codes)[kBlocks], const char* const (&ahead)[kBlocks], int64_t first,
    int64_t end, KeySums<Format, kRows, kBlocks>& sum) {
  constexpr int kQueryParts = query_parts<Format>();
  constexpr int kFetched = kBlocks == kTileBlocks ? kEarlyBlocks : kBlocks;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b) {
#pragma GCC unroll 2
      for (int part = 0; part < kQueryParts; ++part) {
        const bool corrected = ByteDot::kZero != 0 && part == kQueryParts - 1;
        const int32_t* correction = queries[r].corrections + first / kGroupPairs;
        sum[r][b][part] = ByteDot::start(corrected ? load_word(correction) : zero_words());
      }
    }
  }
  for (; first < end; first += kGroupPairs) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kGroupPairs; ++i) {
      const int64_t pair = first + i;
      Words bytes[kBlocks][2];
#pragma GCC unroll 8
      for (int b = 0; b < kBlocks; ++b) {
        // The position of a pair's bits in a register is a constant, since the loop is unrolled.
        format.load(codes[b], c.coded_dim, pair, bytes[b]);
        if (b < kFetched) fetch_pair<Format::kBits>(ahead[b], pair);
      }
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        decltype(ByteDot::prepare(Words{})) weights[kBlocks];
#pragma GCC unroll 8
        for (int b = 0; b < kBlocks; ++b) weights[b] = ByteDot::prepare(bytes[b][half]);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const int64_t at = pair * kPairDims + half * 4;
#pragma GCC unroll 2
          for (int part = 0; part < kQueryParts; ++part) {
            const Words input = broadcast_word(queries[r].parts[part] + at);
#pragma GCC unroll 8
            for (int b = 0; b < kBlocks; ++b) {
              sum[r][b][part] = ByteDot::add(sum[r][b][part], weights[b], input);
            }
          }
        }
      }
    }
  }
}

template <KvCodec kCodec, int kRows, int kBlocks>
__attribute__((always_inline)) inline void score_coded_blocks(const CodedAttendArgs& c,
                                                              const AttendRow* rows,
                                                              const CodedQuery* queries,
                                                              const KeyRange& range, int64_t block,
                                                              float (*p)[kTileKeys]) {
  using Format = CodeFormat<kCodec, 128>;
  constexpr int kQueryParts = query_parts<Format>();
  const Format format;
  const int64_t pairs = c.coded_dim / kPairDims;
  const char* codes[kBlocks];
  const uint16_t* scales[kBlocks];
  const char* ahead[kBlocks];
#pragma GCC unroll 8
  for (int b = 0; b < kBlocks; ++b) {
    codes[b] = coded_bytes(c, block + b) + c.key_codes_offset;
    scales[b] = reinterpret_cast<const uint16_t*>(coded_bytes(c, block + b) + c.key_scales_offset);
    // For later blocks the codes in use, which are in the cache already.
    ahead[b] = block + b < range.tile_block + kEarlyBlocks
                   ? coded_ahead(c, block + b, c.key_codes_offset, c.next_codes)
                   : codes[b];
    fetch<Fetch::kToL2>(coded_ahead(c, block + b, c.key_scales_offset, c.next_scales));
  }
  const int64_t group_pairs = Format::kGrouped ? kGroupPairs : pairs;
  Lanes scores[kRows][kBlocks];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b) scores[r][b] = zero();
  }
  for (int64_t first = 0; first < pairs; first += group_pairs) {
    KeySums<Format, kRows, kBlocks> sum;
    multiply_keys<Format, kRows, kBlocks>(c, format, queries, codes, ahead, first,
                                          first + group_pairs, sum);
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b) {
      const Lanes scale = load_f16(scales[b] + first / kGroupPairs * kLane);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Words none = zero_words();
        Words dot = ByteDot::finish(sum[r][b][kQueryParts - 1], none);
        if constexpr (kQueryParts == 2) {
          dot = add_words(times_128(ByteDot::finish(sum[r][b][0], none)), dot);
        }
        scores[r][b] = fma(to_floats(dot), scale, scores[r][b]);
      }
    }
    if constexpr (!Format::kGrouped) break;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Lanes query_scale = set(queries[r].scale);
    const Lanes centre = set(queries[r].centre), scale = set(c.exact.scale);
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b) {
      Lanes score = mul(add(mul(scores[r][b], query_scale), centre), scale);
      if (!range.whole) score = hide_keys(score, rows[r], block + b);
      store(p[r] + (block + b - range.tile_block) * kBlockTokens, score);
    }
  }
}

// The same for one row and one block, as a function of its own: a tile at the edge of what rows see
// uses it for the blocks that do not fill a register tile.
template <KvCodec kCodec>
__attribute__((noinline)) void score_coded_block(const CodedAttendArgs& c, const AttendRow* row,
                                                 const CodedQuery* query, const KeyRange& range,
                                                 int64_t block, float (*p)[kTileKeys]) {
  score_coded_blocks<kCodec, 1, 1>(c, row, query, range, block, p);
}

// Scores of kRows rows against a tile's coded keys.
template <KvCodec kCodec, int kRows>
__attribute__((noinline)) void score_coded_tile(const CodedAttendArgs& c, const AttendRow* rows,
                                                const CodedQuery* queries, const KeyRange& range,
                                                float (*p)[kTileKeys]) {
  constexpr int kQueryParts = query_parts<CodeFormat<kCodec, 128>>(), kMost = code_rows(kQueryParts);
  if constexpr (kRows > kMost) {
    score_coded_tile<kCodec, kMost>(c, rows, queries, range, p);
    score_coded_tile<kCodec, kRows - kMost>(c, rows + kMost, queries + kMost, range, p + kMost);
  } else {
    constexpr int kBlocks = code_blocks(kRows, kQueryParts);
    int64_t block = range.first_block;
    for (; block + kBlocks <= range.last_block + 1; block += kBlocks) {
      score_coded_blocks<kCodec, kRows, kBlocks>(c, rows, queries, range, block, p);
    }
    if constexpr (kBlocks > 1) {
      for (; block <= range.last_block; ++block) {
        for (int r = 0; r < kRows; ++r) {
          score_coded_block<kCodec>(c, rows + r, queries + r, range, block, p + r);
        }
      }
    }
  }
}

// The weights of a tile's keys for one group of value scales, as bytes: word 4 * quad + block.
struct CodedWeights {
  alignas(64) int8_t parts[kTileRows][kParts][kTileKeys];
  alignas(64) float scales[kLane];
  int32_t sums[kTileRows];
};

template <bool kSigned>
__attribute__((noinline, noclone)) void round_weights(const CodedAttendArgs& c,
                                                      const AttendRow* rows, int count,
                                                      const KeyRange& range,
                                                      const float (*p)[kTileKeys], int64_t group,
                                                      CodedWeights& weights) {
  alignas(64) float products[kTileRows][kTileKeys];
  alignas(64) float largest[kLane] = {}, inverse[kLane];
  Lanes scales[kTileBlocks];
  for (int b = 0; b < kTileBlocks; ++b) {
    const int64_t block = range.tile_block + b;
    const bool seen = range.first_block <= block && block <= range.last_block;
    scales[b] = seen ? load_f16(reinterpret_cast<const uint16_t*>(coded_bytes(c, block) +
                                                                  c.value_scales_offset) +
                                group * kLane)
                     : zero();
  }
  for (int r = 0; r < count; ++r) {
    Lanes w[kTileBlocks];
    for (int b = 0; b < kTileBlocks; ++b) {
      const int64_t block = range.tile_block + b;
      const bool seen = range.first_block <= block && block <= range.last_block;
      w[b] = seen ? mul(load(p[r] + b * kBlockTokens), scales[b]) : zero();
      // A hidden value is not even multiplied by 0: its scale may be a NaN.
      if (seen && !range.whole) {
        const Lanes first = set(static_cast<float>(rows[r].first_key - block * kBlockTokens));
        w[b] = select_less(lane_numbers(), first, zero(), w[b]);
      }
      store(products[r] + b * kBlockTokens, w[b]);
    }
    largest[r] = largest_magnitude(larger_magnitude(w[0], w[1]), larger_magnitude(w[2], w[3]));
  }
  const Lanes most = load(largest), least = set(kPartsLeast);
  store(inverse, select_less(most, least, zero(), div(set(kPartsLargest), most)));
  const Lanes scale =
      select_less(most, set(kInfinity), div(most, set(kPartsLargest)), set(__builtin_nanf("")));
  store(weights.scales, select_less(most, least, zero(), scale));
  for (int r = 0; r < count; ++r) {
    Lanes w[kTileBlocks];
    for (int b = 0; b < kTileBlocks; ++b) {
      w[b] = mul(load(products[r] + b * kBlockTokens), set(inverse[r]));
    }
    const Words sum = store_parts<!kSigned>(w, weights.parts[r][0], weights.parts[r][1]);
    if constexpr (kSigned && ByteDot::kZero != 0) {
      weights.sums[r] = -ByteDot::kZero * fold_words(sum);
    }
  }
}

// 32 dimensions of the output of kRows rows. out: of the first row, a state apart from the next's.
template <class Format, int kRows>
__attribute__((always_inline)) inline void add_coded_columns(
    const CodedAttendArgs& c, const Format& format, const KeyRange& range, const float* rescale,
    int first_row, const CodedWeights& weights, int64_t column_pair, float* out) {
  using Sum = typename ByteDot::Sum;
  Sum sum[kRows][kParts][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      sum[r][part][0] = sum[r][part][1] = ByteDot::start(zero_words());
    }
  }
  const int64_t column_pairs = c.coded_dim / kVectorPair;
  for (int64_t block = range.first_block; block <= range.last_block; ++block) {
    const char* codes = coded_bytes(c, block) + c.value_codes_offset;
    const char* ahead = coded_ahead(c, block, c.value_codes_offset, c.next_codes);
    const int64_t word = (block - range.tile_block) * 4;
#pragma GCC unroll 4
    for (int64_t quad = 0; quad < 4; ++quad) {
      Words bytes[2];
      format.load(codes, c.coded_dim, quad * column_pairs + column_pair, bytes);
      if (block < range.last_block) fetch_pair<Format::kBits>(ahead, column_pair * 4 + quad);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int part = 0; part < kParts; ++part) {
          const Words weight =
              broadcast_word(weights.parts[first_row + r][part] + quad * 16 + word);
#pragma GCC unroll 2
          for (int half = 0; half < 2; ++half) {
            if constexpr (Format::kSigned) {
              sum[r][part][half] =
                  ByteDot::add(sum[r][part][half], ByteDot::prepare(bytes[half]), weight);
            } else {
              sum[r][part][half] = WeightDot::add(sum[r][part][half], bytes[half], weight);
            }
          }
        }
      }
    }
  }
  const int64_t stride = state_floats(c.exact);
  out += column_pair * kVectorPair;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Lanes factor = set(rescale[r]), scale = set(weights.scales[first_row + r]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const Words none = zero_words();
      Words dot = add_words(times_128(ByteDot::finish(sum[r][0][half], none)),
                            ByteDot::finish(sum[r][1][half], none));
      if constexpr (Format::kSigned && ByteDot::kZero != 0) {
        dot = add_words(dot, load_word(weights.sums + first_row + r));
      }
      float* place = out + r * stride + half * kLane;
      store(place, fma(to_floats(dot), scale, mul(load(place), factor)));
    }
  }
}

// The same as a function of its own: tiles of more rows than the registers hold share it.
template <class Format, int kRows>
__attribute__((noinline)) void add_coded_columns_apart(const CodedAttendArgs& c,
                                                       const Format& format, const KeyRange& range,
                                                       const float* rescale, int first_row,
                                                       const CodedWeights& weights,
                                                       int64_t column_pair, float* out) {
  add_coded_columns<Format, kRows>(c, format, range, rescale, first_row, weights, column_pair, out);
}

// out = out * rescale + p * values of a tile.
template <KvCodec kCodec, int kRows>
__attribute__((noinline)) void add_coded_tile(const CodedAttendArgs& c, const AttendRow* rows,
                                              const KeyRange& range, const float* rescale,
                                              const float (*p)[kTileKeys], float* out) {
  constexpr bool kSigned = CodeFormat<kCodec, 0>::kSigned;
  using Format = CodeFormat<kCodec, kSigned ? 128 : 0>;
  const Format format;
  CodedWeights weights;
  fetch_last_values(c, range);
  for (int64_t pair = 0; pair < c.coded_dim / kVectorPair; ++pair) {
    if (pair == 0 || Format::kGrouped) {
      round_weights<kSigned>(c, rows, kRows, range, p, pair, weights);
    }
    constexpr int kMost = code_rows(kParts);
    if constexpr (kRows > kMost) {
      add_coded_columns_apart<Format, kMost>(c, format, range, rescale, 0, weights, pair, out);
      add_coded_columns_apart<Format, kRows - kMost>(c, format, range, rescale + kMost, kMost,
                                                     weights, pair,
                                                     out + kMost * state_floats(c.exact));
    } else {
      add_coded_columns<Format, kRows>(c, format, range, rescale, 0, weights, pair, out);
    }
  }
  for (int64_t block = range.first_block; block <= range.last_block; ++block) {
    fetch<Fetch::kToL2>(coded_ahead(c, block, c.value_scales_offset, c.next_scales));
  }
}

// The functions for one codec: one entry for each number of rows, 1 to kTileRows.
struct CodeTiles {
  void (*score[kTileRows])(const CodedAttendArgs&, const AttendRow* rows, const CodedQuery*,
                           const KeyRange&, float (*p)[kTileKeys]);
  void (*add[kTileRows])(const CodedAttendArgs&, const AttendRow* rows, const KeyRange&,
                         const float* rescale, const float (*p)[kTileKeys], float* out);
};

template <KvCodec kCodec>
constexpr CodeTiles kCodeTiles = {
    .score = {score_coded_tile<kCodec, 1>, score_coded_tile<kCodec, 2>,
              score_coded_tile<kCodec, 3>, score_coded_tile<kCodec, 4>,
              score_coded_tile<kCodec, 5>, score_coded_tile<kCodec, 6>},
    .add = {add_coded_tile<kCodec, 1>, add_coded_tile<kCodec, 2>,
            add_coded_tile<kCodec, 3>, add_coded_tile<kCodec, 4>,
            add_coded_tile<kCodec, 5>, add_coded_tile<kCodec, 6>}};

// Null for exact keys or values, which have ExactTiles.
inline const CodeTiles* code_tiles(KvCodec codec) {
  const CodeTiles* tiles = nullptr;
  with_codec(codec, [&](auto constant) {
    constexpr KvCodec kCodec = constant();
    if constexpr (kCodec != KvCodec::exact) tiles = &kCodeTiles<kCodec>;
  });
  return tiles;
}
