// Chains of fused multiply-adds in registers, the inner loop of float products and of attention
// over exact keys and values. Included inside the anonymous namespace of a file, after tiles.inl.
//
// A tile keeps kRows x kVectors accumulators in registers for the whole of k, so that every output
// is one unbroken chain. How many rows share a tile cannot change a bit of any of them.

// A format says how a step of the chain reads one vector of columns and fuses it into the sum.
// kDepth: elements of k in a step. kParts: fused adds in a step. With two parts the input has been
// widened to floats; otherwise it is read as words of four bytes. kVectorBytes: the bytes of the
// weights of 16 columns in a step.
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

// One part of one step: sum[r][v] = fma(weights[v], inputs[r], sum[r][v]).
// Without the pragmas, here and below, gcc 12 unrolls too late and keeps sums in memory.
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

// `steps` steps of every chain. weights[v]: the first word of vector v; the next one is weight_step
// bytes further. inputs[r]: the first input of row r, four bytes a part. ahead[v]: what to prefetch
// meanwhile; it moves by ahead_step bytes a step.
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
