// Matrix products over panels of quantised weights, in groups of 32 k (cpu/linear_args.h). Included
// inside the anonymous namespace of a file, after tiles.inl. The file's lanes.inl defines
//   Words, sixteen 32-bit integers or 64 bytes: zero_words, set_words, load_words, load_word (one,
//     sixteen times), broadcast_word (four bytes, sixteen times), low_nibbles and high_nibbles of
//     each byte, negative_multiple, to_floats, hide;
//   kLanesRegisters, how many Lanes the registers hold.
// A dots file defines ByteDot, for weights of eight bits stored as weight + 128, and NibbleDot, for
// weights of four bits as stored:
//   Sum: the accumulator of a group of 16 columns. kMaxRows: the most rows of x in a tile.
//   start(correction): the sum of no products. add(sum, weights, x): adds the products of four
//   bytes of each column and of x. finish(sum, correction): the result as Words. The correction is
//   added by start or by finish. It is -zero * (sum of x), or 0 where 0 stands for 0.
//   ByteDot::prepare(stored): the form of the weights that add takes. ByteDot::kZero: the byte that
//   stands for 0 in that form.
//
// A tile keeps the integer sums of one group in registers: kRows x kVectors of them. Sums over
// groups are floats. They stay in registers too where there is room, else in the first-level cache.
// Either way each is one chain over the groups.

// -kZero times the sum of a group's inputs.
template <int32_t kZero>
inline Words zero_correction(const int32_t* x_sum) {
  if constexpr (kZero == 0) return zero_words();
  return negative_multiple<kZero>(load_word(x_sum));
}

// Whether the float sums of a tile have registers beside its integer sums, weights and input.
constexpr bool sums_fit(int rows, int vectors) {
  return 2 * rows * vectors + vectors + 3 <= kLanesRegisters;
}

// A format describes a group of one vector (16 columns): kQuads x 16 words and the scales after
// them, and how a quad of words enters the integer sums of all rows.
struct Q8Format {
  using Dot = ByteDot;
  static constexpr int kQuads = 8;
  static constexpr int kHalves = 1;
  static constexpr int32_t kZero = ByteDot::kZero;
  static constexpr bool kHasMinimum = false;
  static constexpr int64_t kColumnBytes = 32 + 2;
  static auto weights(Words stored, int) { return ByteDot::prepare(stored); }
};

// The low halves of a quad's bytes multiply the first 16 inputs, the high halves the last 16.
template <int32_t kZeroPoint, bool kMinimum>
struct Q4Format {
  using Dot = NibbleDot;
  static constexpr int kQuads = 4;
  static constexpr int kHalves = 2;
  static constexpr int32_t kZero = kZeroPoint;
  static constexpr bool kHasMinimum = kMinimum;
  static constexpr int64_t kColumnBytes = 16 + 2 + (kMinimum ? 2 : 0);
  static Words weights(Words stored, int half) {
    return half == 0 ? low_nibbles(stored) : high_nibbles(stored);
  }
};

using Q40Format = Q4Format<8, false>;
using Q41Format = Q4Format<0, true>;

// Groups [begin, end) of a panel for some rows, and where their sums are kept until the next
// stretch.
struct GroupStretch {
  int64_t begin;
  int64_t end;
  bool last;            // of the panel: the sums become outputs
  int64_t first_row;    // of x: the first row of partial
  float* partial;       // (rows, 64)
  int64_t ahead_bytes;  // from a weight to the bytes that are prefetched meanwhile
};

// Rows [row, row + kRows) and columns [16 * vector, 16 * (vector + kVectors)) over a stretch.
template <class Format, Fetch kFetch, int kRows, int kVectors>
__attribute__((noinline)) void group_tile(const LinearArgs& a, int64_t row, int64_t vector,
                                          const GroupStretch& stretch) {
  using Dot = typename Format::Dot;
  const int64_t groups = (a.k + kGroupValues - 1) / kGroupValues;
  const int64_t quad_bytes = a.width * 4;
  const int64_t group_bytes = a.width * Format::kColumnBytes;
  const char* panel = static_cast<const char*>(a.panel) + stretch.begin * group_bytes;
  const int8_t* x = static_cast<const int8_t*>(a.x) + row * a.x_stride;
  const float* x_scales = a.x_scales + row * groups;
  const int32_t* x_sums = a.x_sums + row * groups;
  const bool whole = stretch.begin == 0 && stretch.last;
  float* partial =
      whole ? nullptr
            : stretch.partial + (row - stretch.first_row) * kPanelColumns + vector * kLane;
  constexpr bool kFit = sums_fit(kRows, kVectors);
  Lanes total[kFit ? kRows : 1][kVectors];
  alignas(64) float memory[kFit ? 1 : kRows * kVectors * kLane];
  float* waiting = memory;
  // Hides from the compiler that this is a local array. Otherwise it keeps some of its elements in
  // registers, and the integer sums in memory.
  if constexpr (!kFit) asm volatile("" : "+r"(waiting) : : "memory");
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Lanes sum = stretch.begin == 0 ? zero() : load(partial + r * kPanelColumns + v * kLane);
      if constexpr (kFit) {
        total[r][v] = sum;
      } else {
        store(waiting + (r * kVectors + v) * kLane, sum);
      }
    }
  }
  for (int64_t group = stretch.begin; group < stretch.end; ++group, panel += group_bytes) {
    const char* quads = panel + vector * kLaneBytes;
    Words correction[kRows];
    typename Dot::Sum sum[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      correction[r] = zero_correction<Format::kZero>(x_sums + r * groups + group);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Dot::start(correction[r]);
    }
#pragma GCC unroll 8
    for (int quad = 0; quad < Format::kQuads; ++quad, quads += quad_bytes) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        fetch<kFetch>(quads + stretch.ahead_bytes + v * kLaneBytes);
      }
      const int8_t* inputs = x + group * kGroupValues + quad * 4;
#pragma GCC unroll 2
      for (int half = 0; half < Format::kHalves; ++half) {
        decltype(Format::weights(Words{}, 0)) weights[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          weights[v] = Format::weights(load_words(quads + v * kLaneBytes), half);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const Words input = broadcast_word(inputs + r * a.x_stride + half * 16);
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) {
            sum[r][v] = Dot::add(sum[r][v], weights[v], input);
          }
        }
      }
    }
    const char* ends = panel + Format::kQuads * quad_bytes + vector * kLane * 2;
    Lanes scales[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      if (v % 2 == 0) {
        fetch<kFetch>(ends + stretch.ahead_bytes + v * kLane * 2);
        if constexpr (Format::kHasMinimum) {
          fetch<kFetch>(ends + stretch.ahead_bytes + (a.width + v * kLane) * 2);
        }
      }
      scales[v] = load_f16(reinterpret_cast<const uint16_t*>(ends) + v * kLane);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Lanes x_scale = broadcast(x_scales + r * groups + group);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Lanes dot = to_floats(Dot::finish(sum[r][v], correction[r]));
        const Lanes scale = mul(scales[v], x_scale);
        float* waits = waiting + (r * kVectors + v) * kLane;
        Lanes sum_so_far;
        if constexpr (kFit) {
          sum_so_far = fma(dot, scale, total[r][v]);
        } else {
          sum_so_far = fma(dot, scale, load(waits));
        }
        if constexpr (Format::kHasMinimum) {
          const uint16_t* minimums = reinterpret_cast<const uint16_t*>(ends + a.width * 2);
          const Lanes x_sum = to_floats(load_word(x_sums + r * groups + group));
          sum_so_far = fma(load_f16(minimums + v * kLane), mul(x_scale, x_sum), sum_so_far);
        }
        if constexpr (kFit) {
          total[r][v] = sum_so_far;
        } else {
          store(waits, sum_so_far);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Lanes sum;
      if constexpr (kFit) {
        sum = total[r][v];
      } else {
        sum = load(waiting + (r * kVectors + v) * kLane);
      }
      if (stretch.last) {
        store_output(a, row + r, (vector + v) * kLane, sum);
      } else {
        store(partial + r * kPanelColumns + v * kLane, sum);
      }
    }
  }
}

template <class Format, Fetch kFetch, int kRows>
void group_rows(const LinearArgs& a, int64_t row, const GroupStretch& stretch) {
  constexpr int kVectors = tile_vectors(kRows);
  const int64_t end = (a.first + a.columns) / kLane;
  int64_t v = a.first / kLane;
  for (; v + kVectors <= end; v += kVectors) {
    group_tile<Format, kFetch, kRows, kVectors>(a, row, v, stretch);
  }
  if constexpr (kVectors > 2) {
    for (; v + 2 <= end; v += 2) group_tile<Format, kFetch, kRows, 2>(a, row, v, stretch);
  }
  for (; v < end; ++v) group_tile<Format, kFetch, kRows, 1>(a, row, v, stretch);
}

using GroupRowsFunction = void (*)(const LinearArgs&, int64_t row, const GroupStretch&);

// The fewest rows of a tile that is one of several: see next_tile_rows.
template <class Format>
constexpr int kFewestShared = (Format::Dot::kMaxRows + 1) / 2;

// Null for a number of rows that no tile of this kind has.
template <class Format, Fetch kFetch, int kRows>
constexpr GroupRowsFunction group_rows_function() {
  constexpr bool kShared = kRows >= kFewestShared<Format>;
  if constexpr (kRows <= Format::Dot::kMaxRows && kShared == (kFetch != Fetch::kToL1)) {
    return group_rows<Format, kFetch, kRows>;
  }
  return nullptr;
}

template <class Format, Fetch kFetch>
void group_rows(const LinearArgs& a, int64_t row, int rows, const GroupStretch& stretch) {
  static constexpr GroupRowsFunction kFunctions[kTileRows] = {
      group_rows_function<Format, kFetch, 1>(), group_rows_function<Format, kFetch, 2>(),
      group_rows_function<Format, kFetch, 3>(), group_rows_function<Format, kFetch, 4>(),
      group_rows_function<Format, kFetch, 5>(), group_rows_function<Format, kFetch, 6>()};
  kFunctions[rows - 1](a, row, stretch);
}

// One tile of rows takes a panel in one go. Several tiles go over it in stretches that stay in the
// first-level cache, and the first of them prefetches the next stretch.
template <class Format>
void linear_groups(const LinearArgs& a) {
  constexpr int kMostRows = Format::Dot::kMaxRows;
  constexpr int64_t kPartialRows = 96;
  // About 27 KB of weights.
  constexpr int64_t kStretchGroups = 27648 / (Format::kColumnBytes * kPanelColumns);
  const int64_t groups = (a.k + kGroupValues - 1) / kGroupValues;
  alignas(64) float partial[kPartialRows * kPanelColumns];
  for (int64_t block = 0; block < a.rows; block += kPartialRows) {
    const int64_t end = a.rows - block < kPartialRows ? a.rows : block + kPartialRows;
    if (end - block <= kMostRows) {
      const GroupStretch all = {0, groups, true, block, nullptr, kPrefetchBytes};
      const int rows = static_cast<int>(end - block);
      // Few rows wait for memory, and more rows for arithmetic.
      if (rows < kFewestShared<Format>) {
        group_rows<Format, Fetch::kToL1>(a, block, rows, all);
      } else {
        group_rows<Format, Fetch::kToL2>(a, block, rows, all);
      }
      continue;
    }
    GroupStretch stretch;
    stretch.first_row = block;
    stretch.partial = partial;
    stretch.ahead_bytes = kStretchGroups * a.width * Format::kColumnBytes;
    for (stretch.begin = 0; stretch.begin < groups; stretch.begin = stretch.end) {
      stretch.end = stretch.begin + kStretchGroups;
      if (stretch.end > groups) stretch.end = groups;
      stretch.last = stretch.end == groups;
      for (int64_t row = block; row < end;) {
        const int rows = next_tile_rows<kMostRows>(end - row);
        if (row == block) {
          group_rows<Format, Fetch::kToL2>(a, row, rows, stretch);
        } else {
          group_rows<Format, Fetch::kNothing>(a, row, rows, stretch);
        }
        row += rows;
      }
    }
  }
}

int64_t probe_int8(int64_t iterations, float* sink) {
  ByteDot::Sum sum[kProbeChains];
  const auto weights = ByteDot::prepare(set_words(0x01010101));
  Words x = set_words(0x01000100);
#pragma GCC unroll 16
  for (int c = 0; c < kProbeChains; ++c) sum[c] = ByteDot::start(zero_words());
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kProbeChains; ++c) {
      hide(x);
      sum[c] = ByteDot::add(sum[c], weights, x);
    }
  }
  Lanes total = zero();
#pragma GCC unroll 16
  for (int c = 0; c < kProbeChains; ++c) {
    total = add(total, to_floats(ByteDot::finish(sum[c], zero_words())));
  }
  *sink = fold_add(total);
  return iterations * kProbeChains * kLane * 2 * 4;
}
