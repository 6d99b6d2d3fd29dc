// What matrix products and attention share: constants, prefetching, the rows of a tile, and how an
// output is stored. Included inside the anonymous namespace of a file, after its lanes.inl.

constexpr int64_t kLaneBytes = 64;        // a cache line, and sixteen words
constexpr int64_t kPrefetchBytes = 6144;  // ahead in the panel: 4 to 8 KiB do equally well
constexpr float kInfinity = __builtin_inff();

enum class Fetch { kNothing, kToL1, kToL2 };

template <Fetch kFetch>
inline void fetch(const char* p) {
  if constexpr (kFetch == Fetch::kToL1) __builtin_prefetch(p, 0, 3);
  if constexpr (kFetch == Fetch::kToL2) __builtin_prefetch(p, 0, 2);
}

// A core has a limited number of memory reads in flight. A burst of prefetches delays the
// arithmetic behind it, and without any the memory idles, so prefetches are spread over the work.
// This one fetches lines [part / parts, (part + 1) / parts) of some bytes. It is forced inline,
// because gcc drops calls of functions that only prefetch.
template <Fetch kFetch>
__attribute__((always_inline)) inline void fetch_part(const char* bytes, int64_t count, int part,
                                                      int parts) {
  const int64_t lines = count / kLaneBytes, end = lines * (part + 1) / parts;
  for (int64_t i = lines * part / parts; i < end; ++i) fetch<kFetch>(bytes + i * kLaneBytes);
}

// How many of the remaining rows the next tile takes. It avoids a thin last tile, which would leave
// registers idle.
template <int kMost = kTileRows>
inline int next_tile_rows(int64_t rows) {
  if (rows <= kMost) return static_cast<int>(rows);
  if (rows < 2 * kMost) return static_cast<int>((rows + 1) / 2);
  return kMost;
}

// Ends the chain of a vector of outputs. column: of the panel.
inline void store_output(const LinearArgs& a, int64_t row, int64_t column, Lanes value) {
  float* y = a.y + row * a.y_stride + column - a.first;
  if (a.bias != nullptr) value = add(value, load(a.bias + column - a.first));
  if (a.add) value = add(load(y), value);
  store(y, value);
}
