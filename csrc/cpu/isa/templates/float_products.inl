// Matrix products over packed panels of floats (f32, f16 and bf16). Included inside the anonymous
// namespace of a file, after chains.inl. The file's lanes.inl defines Lanes and its operations,
// FlushDenormals, tile_vectors(rows) and kProbeChains.

// A stretch of k for the rows of a tile. inputs: (kRows, ...), row_bytes apart.
struct Stretch {
  int64_t begin;  // steps
  int64_t end;
  const char* inputs;
  int64_t row_bytes;
  float* partial;  // (kRows, 64), where the sums wait for the next stretch
  int64_t ahead_bytes;
  bool shared;  // the passes over the stretch share the prefetching of what lies ahead
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

// A tile as wide as the panel takes all of k at once, unless the input has to be widened. Narrower
// tiles go over the panel several times, in stretches that stay in the first-level cache. Each pass
// then prefetches its share of the next stretch.
//
// ahead: the panel to prefetch meanwhile, if this one is in the second-level cache already.
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
  // The first tile waits for memory, and the others find the panel in the cache. The second one
  // fetches the next panel while it computes.
  int64_t row = 0;
  for (int tile = 0; row < a.rows; ++tile) {
    const int rows = next_tile_rows(a.rows - row);
    kRowsFunctions[rows - 1](a, row, tile == 1 ? static_cast<const char*>(a.next) : nullptr);
    row += rows;
  }
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
