// Matrix products over packed panels, for an instruction set that is described by sixteen-float
// Lanes. Included inside the anonymous namespace of each such file, which has defined Lanes, its
// operations, Bf16Format, FlushDenormals, tile_vectors(rows) and kProbeChains. Knows nothing of the
// registers behind Lanes, nor of threads.
//
// A tile keeps kRows x kVectors accumulators in registers for the whole of k, so that every output
// is one unbroken chain; how many rows share a tile cannot change a bit of any of them.

constexpr int kTileRows = 6;        // 6 rows x 4 vectors fill 24 of the 32 registers of AVX-512
constexpr int64_t kLaneBytes = 64;  // a cache line, and sixteen words
constexpr int64_t kPrefetchBytes = 6144;  // ahead in the panel: 4 to 8 KiB do equally well
constexpr float kInfinity = __builtin_inff();

enum class Fetch { kNothing, kToL1, kToL2 };

// A format says how a step of the chain reads one vector of columns and fuses it into the sum.
// kDepth: elements of k in a step; kParts: fused adds in a step. With two parts the input has been
// widened to floats; else it is read as words of four bytes. kVectorBytes: the weights of 16
// columns in a step.
struct F32Format {
  static constexpr int kDepth = 1;
  static constexpr int kParts = 1;
  static constexpr int64_t kElementBytes = 4;  // of the input
  static constexpr int64_t kVectorBytes = 64;
  template <int kPart>
  static Lanes weight(const char* p) {
    return load(reinterpret_cast<const float*>(p));
  }
  static Lanes fuse(Lanes weight, Lanes input, Lanes sum) { return fma(weight, input, sum); }
};

struct F16Format : F32Format {
  static constexpr int64_t kVectorBytes = 32;
  template <int kPart>
  static Lanes weight(const char* p) {
    return load_f16(reinterpret_cast<const uint16_t*>(p));
  }
};

// Rows of x that the next tile takes: never a thin last tile, which would leave registers idle.
template <int kMost = kTileRows>
inline int next_tile_rows(int64_t rows) {
  if (rows <= kMost) return static_cast<int>(rows);
  if (rows < 2 * kMost) return static_cast<int>((rows + 1) / 2);
  return kMost;
}

// What ends the chain of a vector of outputs; column: of the panel.
inline void store_output(const LinearArgs& a, int64_t row, int64_t column, Lanes value) {
  float* y = a.y + row * a.y_stride + column - a.first;
  if (a.bias != nullptr) value = add(value, load(a.bias + column - a.first));
  if (a.add) value = add(load(y), value);
  store(y, value);
}

// One part of one step: sum[r][v] = fma(weights[v], inputs[r], sum[r][v]).
// The pragmas here and below: left to itself gcc 12 unrolls too late to keep sums out of memory.
template <class Format, int kPart, int kRows, int kVectors>
__attribute__((always_inline)) inline void fuse_part(Lanes (&sum)[kRows][kVectors],
                                                     const char* const (&weights)[kVectors],
                                                     const char* const (&inputs)[kRows]) {
  // Within a word the element with the higher k goes first.
  constexpr int64_t kInputOffset = 4 * (Format::kParts - 1 - kPart);
  Lanes columns[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) columns[v] = Format::template weight<kPart>(weights[v]);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Lanes input = broadcast(reinterpret_cast<const float*>(inputs[r] + kInputOffset));
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Format::fuse(columns[v], input, sum[r][v]);
  }
}

// `steps` steps of every chain. weights[v]: first word of vector v, the next one weight_step bytes
// on. inputs[r]: first input of row r, four bytes a part. ahead[v]: what to prefetch meanwhile,
// ahead_step bytes on each step.
template <class Format, Fetch kFetch, int kRows, int kVectors>
__attribute__((always_inline)) inline void accumulate(
    Lanes (&sum)[kRows][kVectors], const char* const (&weights)[kVectors], int64_t weight_step,
    const char* const (&inputs)[kRows], int64_t steps, const char* const (&ahead)[kVectors],
    int64_t ahead_step) {
  for (int64_t step = 0; step < steps; ++step) {
    const char* w[kVectors];
    const char* x[kRows];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      w[v] = weights[v] + step * weight_step;
      const char* next = ahead[v] + step * ahead_step;
      if constexpr (kFetch == Fetch::kToL1) __builtin_prefetch(next, 0, 3);
      if constexpr (kFetch == Fetch::kToL2) __builtin_prefetch(next, 0, 2);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) x[r] = inputs[r] + step * 4 * Format::kParts;
    fuse_part<Format, 0>(sum, w, x);
    if constexpr (Format::kParts == 2) fuse_part<Format, 1>(sum, w, x);
  }
}

// A stretch of k for the rows of a tile. inputs: (kRows, ...), row_bytes apart.
struct Stretch {
  int64_t begin;  // steps
  int64_t end;
  const char* inputs;
  int64_t row_bytes;
  float* partial;  // (kRows, 64), where the sums wait for the next stretch
  int64_t ahead_bytes;
  bool shared;  // between the passes over the stretch: what lies ahead, from end to end
};

// Rows [row, row + kRows) and columns [16 * vector, 16 * (vector + kVectors)) over a stretch.
template <class Format, int kRows, int kVectors>
__attribute__((noinline)) void linear_tile(const LinearArgs& a, int64_t row, int64_t vector,
                                           const Stretch& stretch) {
  Lanes sum[kRows][kVectors];
  const char* weights[kVectors];
  const char* inputs[kRows];
  constexpr int64_t kBytes = Format::kVectorBytes;
  const int64_t step_bytes = a.width / kLane * kBytes;
  const char* panel = static_cast<const char*>(a.panel) + stretch.begin * step_bytes;
  float* partial = stretch.partial + vector * kLane;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) weights[v] = panel + (vector + v) * kBytes;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    inputs[r] = stretch.inputs + r * stretch.row_bytes;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = stretch.begin == 0 ? zero() : load(partial + r * kPanelColumns + v * kLane);
    }
  }
  const int64_t steps = stretch.end - stretch.begin;
  const int64_t share = stretch.shared ? steps * vector : vector;  // where this pass begins
  const char* ahead[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    ahead[v] = panel + stretch.ahead_bytes + (share + v) * kBytes;
  }
  accumulate<Format, Fetch::kToL1>(sum, weights, step_bytes, inputs, steps, ahead,
                                   stretch.shared ? kVectors * kBytes : step_bytes);
  const bool last = stretch.end == a.k / Format::kDepth;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      if (!last) {
        store(partial + r * kPanelColumns + v * kLane, sum[r][v]);
        continue;
      }
      store_output(a, row + r, (vector + v) * kLane, sum[r][v]);
    }
  }
}

// A tile as wide as the panel takes k in one go, unless the input has to be widened. Narrower tiles
// go over the panel several times, in stretches that stay in the first-level cache; each pass then
// prefetches its share of the next stretch.
//
// ahead: the panel to prefetch meanwhile, where this one is in the second-level cache already.
template <class Format, int kRows>
void linear_rows(const LinearArgs& a, int64_t row, const char* ahead) {
  constexpr int kVectors = tile_vectors(kRows);
  // Of 256 bytes: 48 steps and the next 48 fill three quarters of a 32 KiB cache.
  constexpr int64_t kSteps = kVectors * kLane == kPanelColumns ? 256 : 48;
  const int64_t steps = a.k / Format::kDepth;
  const int64_t step_bytes = a.width / kLane * Format::kVectorBytes;
  const int64_t end = (a.first + a.columns) / kLane;
  const bool one_pass = a.columns / kLane <= kVectors;
  const bool whole = Format::kParts == 1 && one_pass;
  alignas(64) float partial[kRows][kPanelColumns];
  const char* x = static_cast<const char*>(a.x) + row * a.x_stride * Format::kElementBytes;
  const int64_t x_row_bytes = a.x_stride * Format::kElementBytes;
  const int64_t own_ahead_bytes = one_pass ? kPrefetchBytes : kSteps * step_bytes;
  const int64_t ahead_bytes =
      ahead == nullptr ? own_ahead_bytes : ahead - static_cast<const char*>(a.panel);
  const bool shared = !one_pass && a.columns == a.width;
  Stretch stretch = {0, 0, x, x_row_bytes, partial[0], ahead_bytes, shared};
  for (; stretch.end < steps; stretch.begin = stretch.end) {
    stretch.end = whole || steps - stretch.begin < kSteps ? steps : stretch.begin + kSteps;
    alignas(64) float widened[kRows][kSteps * Format::kParts];
    if constexpr (Format::kParts == 2) {
      for (int r = 0; r < kRows; ++r) {
        const uint16_t* bits = reinterpret_cast<const uint16_t*>(x + r * x_row_bytes);
        for (int64_t k = stretch.begin * 2; k < stretch.end * 2; k += kLane) {
          store(widened[r] + k - stretch.begin * 2, load_bf16(bits + k));
        }
      }
      stretch.inputs = reinterpret_cast<const char*>(widened);
      stretch.row_bytes = sizeof(widened[0]);
    } else {
      stretch.inputs = x + stretch.begin * 4;
    }
    int64_t v = a.first / kLane;
    for (; v + kVectors <= end; v += kVectors) {
      linear_tile<Format, kRows, kVectors>(a, row, v, stretch);
    }
    if constexpr (kVectors > 2) {
      for (; v + 2 <= end; v += 2) linear_tile<Format, kRows, 2>(a, row, v, stretch);
    }
    for (; v < end; ++v) linear_tile<Format, kRows, 1>(a, row, v, stretch);
  }
}

template <class Format>
void linear(const LinearArgs& a) {
  using RowsFunction = void (*)(const LinearArgs&, int64_t row, const char* ahead);
  static constexpr RowsFunction kRowsFunctions[kTileRows] = {
      linear_rows<Format, 1>, linear_rows<Format, 2>, linear_rows<Format, 3>,
      linear_rows<Format, 4>, linear_rows<Format, 5>, linear_rows<Format, 6>};
  // The first tile waits for memory, the others find the panel in the cache: the second one fetches
  // the next panel while it computes.
  int64_t row = 0;
  for (int tile = 0; row < a.rows; ++tile) {
    const int rows = next_tile_rows(a.rows - row);
    kRowsFunctions[rows - 1](a, row, tile == 1 ? static_cast<const char*>(a.next) : nullptr);
    row += rows;
  }
}

inline void linear_f32(const LinearArgs& a) { linear<F32Format>(a); }
inline void linear_f16(const LinearArgs& a) { linear<F16Format>(a); }

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
