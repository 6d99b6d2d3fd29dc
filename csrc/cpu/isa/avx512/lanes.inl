// Sixteen floats in one 512-bit register. Included inside the anonymous namespace of each file that
// is compiled with AVX-512 F, BW, DQ and VL.

struct Lanes {
  __m512 v;
};

inline Lanes zero() { return {_mm512_setzero_ps()}; }
inline Lanes set(float x) { return {_mm512_set1_ps(x)}; }
inline Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Lanes broadcast(const float* p) { return {_mm512_set1_ps(*p)}; }
inline void store(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }

inline Lanes add(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Lanes sub(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Lanes mul(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes div(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }

// a < b ? yes : no, so `no` where either is NaN.
inline Lanes select_less(Lanes a, Lanes b, Lanes yes, Lanes no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}

inline Lanes magnitude(Lanes a) { return {_mm512_abs_ps(a.v)}; }
inline Lanes square_root(Lanes a) { return {_mm512_sqrt_ps(a.v)}; }

// Lane i and lane i + kStride become their sum and their difference.
template <int kStride>
inline Lanes butterfly(Lanes a) {
  constexpr __mmask16 kUpper = kStride == 1   ? 0xaaaa
                               : kStride == 2 ? 0xcccc
                               : kStride == 4 ? 0xf0f0
                                              : 0xff00;
  __m512 other;
  if constexpr (kStride <= 2) {
    other = _mm512_permute_ps(a.v, kStride == 1 ? 0xb1 : 0x4e);
  } else {
    other = _mm512_shuffle_f32x4(a.v, a.v, kStride == 4 ? 0xb1 : 0x4e);
  }
  return {_mm512_mask_sub_ps(_mm512_add_ps(other, a.v), kUpper, other, a.v)};
}

inline Lanes lane_numbers() {
  return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}

// p * 2^n, where n stands in the low bits of `shifted` and the result is a normal number.
inline Lanes scale_by_low_bits(Lanes p, Lanes shifted) {
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p.v), exponent))};
}

inline float first(Lanes a) { return _mm512_cvtss_f32(a.v); }

inline float fold_add(Lanes a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline float fold_max(Lanes a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// The first `count` lanes, the others 0.
inline Lanes load_part(const float* p, int64_t count) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p)};
}
inline void store_part(float* p, Lanes a, int64_t count) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), a.v);
}

inline Lanes load_bf16(const uint16_t* p) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16))};
}

inline Lanes load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))};
}

inline void store_f16(uint16_t* p, Lanes a) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

// Nearest, ties to even; a NaN keeps its upper bits and becomes quiet.
inline void store_bf16(uint16_t* p, Lanes a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i upper = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
  const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  _mm256_storeu_si256((__m256i*)p,
                      _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet)));
}

// Sixteen doubles, one for each lane.
struct Sums {
  __m512d lo, hi;
};

inline Sums widen(Lanes a) {
  return {_mm512_cvtps_pd(_mm512_castps512_ps256(a.v)),
          _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1))};
}
inline Sums no_sums() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
inline Sums add(Sums sums, Lanes a) {
  const Sums wide = widen(a);
  return {_mm512_add_pd(sums.lo, wide.lo), _mm512_add_pd(sums.hi, wide.hi)};
}
// A product of two floats is exact in double, so that fusing it moves no bit.
inline Sums add_product(Sums sums, Lanes a, Lanes b) {
  const Sums x = widen(a), y = widen(b);
  return {_mm512_fmadd_pd(x.lo, y.lo, sums.lo), _mm512_fmadd_pd(x.hi, y.hi, sums.hi)};
}
inline void store(double* p, Sums sums) {
  _mm512_storeu_pd(p, sums.lo);
  _mm512_storeu_pd(p + 8, sums.hi);
}

inline __m256 shift_and_scale(__m512d x, double shift, double factor) {
  return _mm512_cvtpd_ps(
      _mm512_mul_pd(_mm512_sub_pd(x, _mm512_set1_pd(shift)), _mm512_set1_pd(factor)));
}
// float((double(x) - shift) * factor).
inline Lanes shift_and_scale(Lanes x, double shift, double factor) {
  const Sums wide = widen(x);
  return {_mm512_insertf32x8(_mm512_castps256_ps512(shift_and_scale(wide.lo, shift, factor)),
                             shift_and_scale(wide.hi, shift, factor), 1)};
}

// A bit per lane: low <= x < high.
inline unsigned mask_in_range(Lanes x, Lanes low, Lanes high) {
  return _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(low.v, x.v, _CMP_LE_OQ), x.v, high.v,
                                 _CMP_LT_OQ);
}

// The bits of the integers first, first + 1, ...
inline Lanes count_up(int32_t first) {
  const __m512i numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return {_mm512_castsi512_ps(_mm512_add_epi32(numbers, _mm512_set1_epi32(first)))};
}

// Writes the lanes of the mask side by side and returns their number. The rest of the 16 places is
// undefined. The instruction that compresses into memory is ten times slower on some processors.
inline int64_t compress(unsigned mask, Lanes a, float* out) {
  _mm512_storeu_ps(out, _mm512_maskz_compress_ps(static_cast<__mmask16>(mask), a.v));
  return __builtin_popcount(mask);
}

// Sixteen 32-bit integers, or 64 bytes.
struct Words {
  __m512i v;
};

inline Words zero_words() { return {_mm512_setzero_si512()}; }
inline Words set_words(int32_t x) { return {_mm512_set1_epi32(x)}; }
// Keeps the words in a register. Otherwise gcc reads them again for each use.
inline Words load_words(const char* p) {
  Words words = {_mm512_loadu_si512(p)};
  asm("" : "+v"(words.v));
  return words;
}
inline Words load_word(const int32_t* p) { return {_mm512_set1_epi32(*p)}; }
// -kFactor * a, for a power of two.
template <int32_t kFactor>
inline Words negative_multiple(Words a) {
  const __m512i multiple = _mm512_slli_epi32(a.v, __builtin_ctz(kFactor));
  return {_mm512_sub_epi32(_mm512_setzero_si512(), multiple)};
}
inline Words broadcast_word(const int8_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return {_mm512_set1_epi32(word)};
}
inline Words low_nibbles(Words a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
inline Words high_nibbles(Words a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))};
}
inline Lanes to_floats(Words a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Words add_words(Words a, Words b) { return {_mm512_add_epi32(a.v, b.v)}; }
// Hides from the compiler that the words have not changed.
inline void hide(Words& a) { asm("" : "+v"(a.v)); }

// The largest magnitude; NaN where there is one, for its bits are above those of infinity.
inline float largest_magnitude(Lanes a, Lanes b) {
  const __m512i sign_off = _mm512_set1_epi32(0x7fffffff);
  const __m512i bits = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a.v), sign_off),
                                        _mm512_and_si512(_mm512_castps_si512(b.v), sign_off));
  const int32_t largest = _mm512_reduce_max_epi32(bits);
  float value;
  __builtin_memcpy(&value, &largest, sizeof value);
  return value;
}
inline Words round_to_words(Lanes a) { return {_mm512_cvtps_epi32(a.v)}; }
inline Words truncate_to_words(Lanes a) { return {_mm512_cvttps_epi32(a.v)}; }
// Words of 0 to 255.
inline void store_low_bytes(uint8_t* p, Words a) {
  _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(a.v));
}
// 32 floats of at most 127 rounded to bytes, nearest and ties to even; returns their sum.
inline int32_t store_bytes(int8_t* p, Lanes a, Lanes b) {
  const __m512i low = _mm512_cvtps_epi32(a.v), high = _mm512_cvtps_epi32(b.v);
  _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(low));
  _mm_storeu_si128((__m128i*)(p + 16), _mm512_cvtepi32_epi8(high));
  return _mm512_reduce_add_epi32(_mm512_add_epi32(low, high));
}

// While it lives, denormal inputs and results of this thread count as zero.
struct FlushDenormals {
  unsigned saved = _mm_getcsr();
  FlushDenormals() { _mm_setcsr(saved | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved); }
};

// 6 rows x 4 vectors: 24 accumulators, 4 weights and an input in 32 registers.
constexpr int tile_vectors(int) { return 4; }
constexpr int kProbeChains = 12;
constexpr int kLanesRegisters = 32;

inline uint64_t probe_read(const void* data, int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  __m512i sum[4] = {};
  for (int64_t i = 0; i < bytes; i += 256) {
    for (int line = 0; line < 4; ++line) {
      __builtin_prefetch(p + i + 6144 + line * 64);
      sum[line] = _mm512_add_epi64(sum[line], _mm512_loadu_si512(p + i + line * 64));
    }
  }
  const __m512i total =
      _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(total));
}
