// Sixteen floats in two 256-bit registers. Included inside the anonymous namespace of each file
// that is compiled with AVX2, FMA and F16C.

struct Lanes {
  __m256 lo, hi;
};

inline Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Lanes set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Lanes broadcast(const float* p) {
  const __m256 x = _mm256_broadcast_ss(p);
  return {x, x};
}
inline void store(float* p, Lanes a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}

inline Lanes add(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline Lanes sub(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline Lanes mul(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline Lanes div(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline Lanes max(Lanes a, Lanes b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

// a < b ? yes : no, so `no` where either is NaN.
inline Lanes select_less(Lanes a, Lanes b, Lanes yes, Lanes no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}

inline Lanes magnitude(Lanes a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline Lanes square_root(Lanes a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }

template <int kStride>
inline __m256 butterfly(__m256 a) {
  constexpr int kUpper = kStride == 1 ? 0xaa : kStride == 2 ? 0xcc : 0xf0;
  __m256 other;
  if constexpr (kStride <= 2) {
    other = _mm256_permute_ps(a, kStride == 1 ? 0xb1 : 0x4e);
  } else {
    other = _mm256_permute2f128_ps(a, a, 1);
  }
  return _mm256_blend_ps(_mm256_add_ps(other, a), _mm256_sub_ps(other, a), kUpper);
}
// Lane i and lane i + kStride become their sum and their difference.
template <int kStride>
inline Lanes butterfly(Lanes a) {
  if constexpr (kStride == 8) {
    return {_mm256_add_ps(a.lo, a.hi), _mm256_sub_ps(a.lo, a.hi)};
  } else {
    return {butterfly<kStride>(a.lo), butterfly<kStride>(a.hi)};
  }
}

inline Lanes lane_numbers() {
  return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15)};
}

inline __m256 scale_by_low_bits(__m256 p, __m256 shifted) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
}
// p * 2^n, where n stands in the low bits of `shifted` and the result is a normal number.
inline Lanes scale_by_low_bits(Lanes p, Lanes shifted) {
  return {scale_by_low_bits(p.lo, shifted.lo), scale_by_low_bits(p.hi, shifted.hi)};
}

inline float first(Lanes a) { return _mm256_cvtss_f32(a.lo); }

inline float fold_add(Lanes a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline float fold_max(Lanes a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// The first `count` lanes, the others 0.
inline Lanes load_part(const float* p, int64_t count) {
  float lanes[kLane] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return load(lanes);
}
inline void store_part(float* p, Lanes a, int64_t count) {
  float lanes[kLane];
  store(lanes, a);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}

inline __m256 load_bf16_half(const uint16_t* p) {
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
inline Lanes load_bf16(const uint16_t* p) { return {load_bf16_half(p), load_bf16_half(p + 8)}; }

inline Lanes load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}

inline void store_f16(uint16_t* p, Lanes a) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

// Nearest, ties to even; a NaN keeps its upper bits and becomes quiet.
inline __m256i bf16_bits(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, nan);
}
inline void store_bf16(uint16_t* p, Lanes a) {
  // The pack interleaves the 128-bit halves of its operands; the permutation puts them in order.
  const __m256i packed = _mm256_packus_epi32(bf16_bits(a.lo), bf16_bits(a.hi));
  _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(packed, 0xd8));
}

// Sixteen doubles, one for each lane.
struct Sums {
  __m256d v[4];
};

inline Sums widen(Lanes a) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(a.lo)),
          _mm256_cvtps_pd(_mm256_extractf128_ps(a.lo, 1)),
          _mm256_cvtps_pd(_mm256_castps256_ps128(a.hi)),
          _mm256_cvtps_pd(_mm256_extractf128_ps(a.hi, 1))};
}
inline Sums no_sums() { return widen(zero()); }
inline Sums add(Sums sums, Lanes a) {
  const Sums wide = widen(a);
  for (int i = 0; i < 4; ++i) sums.v[i] = _mm256_add_pd(sums.v[i], wide.v[i]);
  return sums;
}
// A product of two floats is exact in double, so that fusing it moves no bit.
inline Sums add_product(Sums sums, Lanes a, Lanes b) {
  const Sums x = widen(a), y = widen(b);
  for (int i = 0; i < 4; ++i) sums.v[i] = _mm256_fmadd_pd(x.v[i], y.v[i], sums.v[i]);
  return sums;
}
inline void store(double* p, Sums sums) {
  for (int i = 0; i < 4; ++i) _mm256_storeu_pd(p + 4 * i, sums.v[i]);
}

// float((double(x) - shift) * factor).
inline Lanes shift_and_scale(Lanes x, double shift, double factor) {
  const Sums wide = widen(x);
  __m128 quarters[4];
  for (int i = 0; i < 4; ++i) {
    const __m256d shifted = _mm256_sub_pd(wide.v[i], _mm256_set1_pd(shift));
    quarters[i] = _mm256_cvtpd_ps(_mm256_mul_pd(shifted, _mm256_set1_pd(factor)));
  }
  return {_mm256_set_m128(quarters[1], quarters[0]), _mm256_set_m128(quarters[3], quarters[2])};
}

// A bit per lane: low <= x < high.
inline unsigned mask_in_range(Lanes x, Lanes low, Lanes high) {
  const __m256 lo = _mm256_and_ps(_mm256_cmp_ps(low.lo, x.lo, _CMP_LE_OQ),
                                  _mm256_cmp_ps(x.lo, high.lo, _CMP_LT_OQ));
  const __m256 hi = _mm256_and_ps(_mm256_cmp_ps(low.hi, x.hi, _CMP_LE_OQ),
                                  _mm256_cmp_ps(x.hi, high.hi, _CMP_LT_OQ));
  return static_cast<unsigned>(_mm256_movemask_ps(lo) | _mm256_movemask_ps(hi) << 8);
}

// The bits of the integers first, first + 1, ...
inline Lanes count_up(int32_t first) {
  const __m256i lo =
      _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(_mm256_add_epi32(lo, _mm256_set1_epi32(8)))};
}

// For each mask of eight lanes, the numbers of the chosen lanes, one a byte.
struct CompressOrder {
  uint64_t of_mask[256];
};
constexpr CompressOrder compress_order() {
  CompressOrder order = {};
  for (unsigned mask = 0; mask < 256; ++mask) {
    int place = 0;
    for (uint64_t lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) order.of_mask[mask] |= lane << (8 * place++);
    }
  }
  return order;
}
constexpr CompressOrder kCompressOrder = compress_order();

inline int64_t compress(unsigned mask, __m256 a, float* out) {
  const __m128i bytes = _mm_cvtsi64_si128(static_cast<int64_t>(kCompressOrder.of_mask[mask]));
  _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(a, _mm256_cvtepu8_epi32(bytes)));
  return __builtin_popcount(mask);
}
// Writes the lanes of the mask side by side and returns their number. The rest of the 16 places is
// undefined.
inline int64_t compress(unsigned mask, Lanes a, float* out) {
  const int64_t low = compress(mask & 0xff, a.lo, out);
  return low + compress(mask >> 8, a.hi, out + low);
}

// Sixteen 32-bit integers, or 64 bytes.
struct Words {
  __m256i lo, hi;
};

inline Words zero_words() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline Words set_words(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Words load_words(const char* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 32))};
}
inline Words load_word(const int32_t* p) { return set_words(*p); }
// -kFactor * a, for a power of two.
template <int32_t kFactor>
inline Words negative_multiple(Words a) {
  constexpr int kShift = __builtin_ctz(kFactor);
  const __m256i zero = _mm256_setzero_si256();
  return {_mm256_sub_epi32(zero, _mm256_slli_epi32(a.lo, kShift)),
          _mm256_sub_epi32(zero, _mm256_slli_epi32(a.hi, kShift))};
}
inline Words broadcast_word(const int8_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return set_words(word);
}
inline Words low_nibbles(Words a) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
inline Words high_nibbles(Words a) {
  return low_nibbles({_mm256_srli_epi16(a.lo, 4), _mm256_srli_epi16(a.hi, 4)});
}
inline Lanes to_floats(Words a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline Words add_words(Words a, Words b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
// Hides from the compiler that the words have not changed.
inline void hide(Words& a) { asm("" : "+x"(a.lo), "+x"(a.hi)); }

inline __m256i magnitude_bits(__m256 a) {
  return _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
}
// The largest magnitude; NaN where there is one, for its bits are above those of infinity.
inline float largest_magnitude(Lanes a, Lanes b) {
  const __m256i eight =
      _mm256_max_epi32(_mm256_max_epi32(magnitude_bits(a.lo), magnitude_bits(a.hi)),
                       _mm256_max_epi32(magnitude_bits(b.lo), magnitude_bits(b.hi)));
  const __m128i four =
      _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  const __m128i one = _mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1));
  return _mm_cvtss_f32(_mm_castsi128_ps(one));
}
inline Words round_to_words(Lanes a) {
  return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
inline Words truncate_to_words(Lanes a) {
  return {_mm256_cvttps_epi32(a.lo), _mm256_cvttps_epi32(a.hi)};
}
// Words of 0 to 255. Packing works within 128-bit halves, as in store_bf16.
inline void store_low_bytes(uint8_t* p, Words a) {
  const __m256i pairs = _mm256_permute4x64_epi64(_mm256_packus_epi32(a.lo, a.hi), 0xd8);
  _mm_storeu_si128((__m128i*)p, _mm_packus_epi16(_mm256_castsi256_si128(pairs),
                                                 _mm256_extracti128_si256(pairs, 1)));
}
// 32 floats of at most 127 rounded to bytes, nearest and ties to even; returns their sum.
inline int32_t store_bytes(int8_t* p, Lanes a, Lanes b) {
  const __m256i words[4] = {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi),
                            _mm256_cvtps_epi32(b.lo), _mm256_cvtps_epi32(b.hi)};
  // Packing works within 128-bit halves: the permutation puts the words of bytes in order.
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(words[0], words[1]),
                                           _mm256_packs_epi32(words[2], words[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256((__m256i*)p, _mm256_permutevar8x32_epi32(bytes, order));
  const __m256i eight =
      _mm256_add_epi32(_mm256_add_epi32(words[0], words[1]), _mm256_add_epi32(words[2], words[3]));
  const __m128i four =
      _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

// While it lives, denormal inputs and results of this thread count as zero.
struct FlushDenormals {
  unsigned saved = _mm_getcsr();
  FlushDenormals() { _mm_setcsr(saved | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved); }
};

// Of 16 registers, 6 rows x 1 vector take 12 for sums, 2 for weights, 1 for an input. With one row,
// more columns give enough chains to hide the latency of a fused multiply-add.
constexpr int tile_vectors(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
constexpr int kProbeChains = 6;
constexpr int kLanesRegisters = 8;  // each takes two of the 16

inline uint64_t probe_read(const void* data, int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  __m256i sum[8] = {};
  for (int64_t i = 0; i < bytes; i += 256) {
    for (int line = 0; line < 4; ++line) __builtin_prefetch(p + i + 6144 + line * 64);
    for (int w = 0; w < 8; ++w) {
      const __m256i words = _mm256_loadu_si256((const __m256i*)(p + i + w * 32));
      sum[w] = _mm256_add_epi64(sum[w], words);
    }
  }
  uint64_t total = 0;
  for (int w = 0; w < 8; ++w) {
    uint64_t words[4];
    _mm256_storeu_si256((__m256i*)words, sum[w]);
    total += words[0] + words[1] + words[2] + words[3];
  }
  return total;
}
