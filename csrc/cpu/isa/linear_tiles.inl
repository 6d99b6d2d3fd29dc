// Matrix products over packed panels, for an instruction set that is described by sixteen-float
// Lanes. Included inside the anonymous namespace of each such file, which has defined Lanes, its
// operations, Bf16Format, FlushDenormals, tile_vectors(rows) and kProbeChains. Knows nothing of the
// registers behind Lanes, nor of threads.
//
// A tile keeps kRows x kVectors accumulators in registers for the whole of k, so that every output
// is one unbroken chain; how many rows share a tile cannot change a bit of any of them.

constexpr int kTileRows = 6;  // 6 rows x 4 vectors fill 24 of the 32 registers of AVX-512
constexpr int64_t kLaneBytes = 64;
constexpr float kInfinity = __builtin_inff();
constexpr int64_t kPrefetchBytes = 6144;  // ahead of the first pass over a panel: 4 to 8 KiB equal

// A format says how one step of the chain reads a column's word (weights) and a row's word (input),
// and fuses them into the sum. kDepth: elements of k in a word; kParts: fused adds for a word.
struct F32Format {
  static constexpr int kDepth = 1;
  static constexpr int kParts = 1;
  static constexpr int64_t kElementBytes = 4;
  static constexpr int64_t kVectorBytes = 64;
  template <int kPart>
  static Lanes weight(const char* p) {
    return load(reinterpret_cast<const float*>(p));
  }
  template <int kPart>
  static Lanes input(const char* p) {
    return broadcast(reinterpret_cast<const float*>(p));
  }
  static Lanes fuse(Lanes weight, Lanes input, Lanes sum) { return fma(weight, input, sum); }
};

// Rows of x that the next tile takes: never a thin last tile, which would leave registers idle.
inline int next_tile_rows(int64_t rows) {
  if (rows <= kTileRows) return static_cast<int>(rows);
  if (rows < 2 * kTileRows) return static_cast<int>((rows + 1) / 2);
  return kTileRows;
}

// One part of one step: sum[r][v] = fma(weights[v], inputs[r], sum[r][v]).
template <class Format, int kPart, int kRows, int kVectors>
__attribute__((always_inline)) inline void fuse_part(Lanes (&sum)[kRows][kVectors],
                                                     const char* const (&weights)[kVectors],
                                                     const char* const (&inputs)[kRows]) {
  Lanes columns[kVectors];
  for (int v = 0; v < kVectors; ++v) columns[v] = Format::template weight<kPart>(weights[v]);
  for (int r = 0; r < kRows; ++r) {
    const Lanes row = Format::template input<kPart>(inputs[r]);
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Format::fuse(columns[v], row, sum[r][v]);
  }
}

// `steps` steps of every chain. weights[v]: first word of vector v, the next one weight_step bytes
// on. inputs[r]: first word of row r, four bytes a step.
template <class Format, int kRows, int kVectors, bool kPrefetch = false>
__attribute__((always_inline)) inline void accumulate(Lanes (&sum)[kRows][kVectors],
                                                      const char* const (&weights)[kVectors],
                                                      int64_t weight_step,
                                                      const char* const (&inputs)[kRows],
                                                      int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    const char* w[kVectors];
    const char* x[kRows];
    for (int v = 0; v < kVectors; ++v) w[v] = weights[v] + step * weight_step;
    for (int r = 0; r < kRows; ++r) x[r] = inputs[r] + step * 4;
    if constexpr (kPrefetch) {
      for (int line = 0; line < 4; ++line) {
        __builtin_prefetch(w[0] + kPrefetchBytes + line * kLaneBytes);
      }
    }
    fuse_part<Format, 0>(sum, w, x);
    if constexpr (Format::kParts == 2) fuse_part<Format, 1>(sum, w, x);
  }
}

// Rows [row, row + kRows) of columns [16 * vector, 16 * (vector + kVectors)).
template <class Format, int kRows, int kVectors, bool kPrefetch>
__attribute__((noinline)) void linear_tile(const LinearArgs& a, int64_t row, int64_t vector) {
  Lanes sum[kRows][kVectors];
  const char* weights[kVectors];
  const char* inputs[kRows];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = zero();
    inputs[r] =
        static_cast<const char*>(a.x) + (row + r) * a.x_stride * Format::kElementBytes;
  }
  const char* panel = static_cast<const char*>(a.panel) + vector * kLaneBytes;
  for (int v = 0; v < kVectors; ++v) weights[v] = panel + v * kLaneBytes;
  accumulate<Format, kRows, kVectors, kPrefetch>(sum, weights, a.width * 4, inputs,
                                                 a.k / Format::kDepth);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      const int64_t column = (vector + v) * kLane;
      float* y = a.y + (row + r) * a.y_stride + column;
      Lanes value = sum[r][v];
      if (a.bias != nullptr) value = add(value, load(a.bias + column));
      if (a.add) value = add(load(y), value);
      store(y, value);
    }
  }
}

template <class Format, int kRows, bool kPrefetch>
void linear_rows(const LinearArgs& a, int64_t row) {
  constexpr int kVectors = tile_vectors(kRows);
  const int64_t vectors = a.width / kLane;
  int64_t v = 0;
  for (; v + kVectors <= vectors; v += kVectors) {
    linear_tile<Format, kRows, kVectors, kPrefetch>(a, row, v);
  }
  if constexpr (kVectors > 2) {
    for (; v + 2 <= vectors; v += 2) linear_tile<Format, kRows, 2, kPrefetch>(a, row, v);
  }
  for (; v < vectors; ++v) linear_tile<Format, kRows, 1, kPrefetch>(a, row, v);
}

template <class Format>
void linear(const LinearArgs& a) {
  using RowsFunction = void (*)(const LinearArgs&, int64_t row);
  static constexpr RowsFunction kFirst[kTileRows] = {
      linear_rows<Format, 1, true>, linear_rows<Format, 2, true>, linear_rows<Format, 3, true>,
      linear_rows<Format, 4, true>, linear_rows<Format, 5, true>, linear_rows<Format, 6, true>};
  // Later tiles find the panel in the cache: prefetches would only take load slots.
  static constexpr RowsFunction kLater[kTileRows] = {
      linear_rows<Format, 1, false>, linear_rows<Format, 2, false>, linear_rows<Format, 3, false>,
      linear_rows<Format, 4, false>, linear_rows<Format, 5, false>, linear_rows<Format, 6, false>};
  for (int64_t row = 0; row < a.rows;) {
    const int rows = next_tile_rows(a.rows - row);
    (row == 0 ? kFirst : kLater)[rows - 1](a, row);
    row += rows;
  }
}

inline void linear_f32(const LinearArgs& a) { linear<F32Format>(a); }

inline void linear_bf16(const LinearArgs& a) {
  const FlushDenormals flush;
  linear<Bf16Format>(a);
}

template <class Format>
int64_t probe_multiply_add(int64_t iterations, float* sink) {
  Lanes sum[kProbeChains];
  Lanes total = zero();
  const Lanes weight = set(1.0f);
  const Lanes input = set(0x1p-30f);
  for (int c = 0; c < kProbeChains; ++c) sum[c] = set(static_cast<float>(c));
  for (int64_t i = 0; i < iterations; ++i) {
    for (int c = 0; c < kProbeChains; ++c) sum[c] = Format::fuse(weight, input, sum[c]);
  }
  for (int c = 0; c < kProbeChains; ++c) total = add(total, sum[c]);
  *sink = fold_add(total);
  return iterations * kProbeChains * kLane * 2 * (Format::kDepth / Format::kParts);
}

inline int64_t probe_f32(int64_t iterations, float* sink) {
  return probe_multiply_add<F32Format>(iterations, sink);
}

inline int64_t probe_bf16(int64_t iterations, float* sink) {
  return probe_multiply_add<Bf16Format>(iterations, sink);
}
