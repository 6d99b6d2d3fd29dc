// Operations on bits and bytes of Words for attention over codes, in pairs of 256-bit registers
// (templates/code_tiles.inl). Included inside the anonymous namespace of a file, after lanes.inl.

using Halves256 = uint16_t __attribute__((vector_size(32)));

// Of 16-bit halves: bits that come from the neighbouring byte are for the caller to mask.
inline Words shift_right(Words a, int64_t bits) {
  const uint16_t n = static_cast<uint16_t>(bits);
  return {(__m256i)((Halves256)a.lo >> n), (__m256i)((Halves256)a.hi >> n)};
}
inline Words shift_left(Words a, int64_t bits) {
  const uint16_t n = static_cast<uint16_t>(bits);
  return {(__m256i)((Halves256)a.lo << n), (__m256i)((Halves256)a.hi << n)};
}
inline __m256i merge_bits(__m256i mask, __m256i a, __m256i b) {
  return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
}
// Of each byte the bits of kMask from a, the others from b.
template <uint8_t kMask>
inline Words merge_bits(Words a, Words b) {
  const __m256i mask = _mm256_set1_epi8(static_cast<char>(kMask));
  return {merge_bits(mask, a.lo, b.lo), merge_bits(mask, a.hi, b.hi)};
}
// Each byte becomes byte (itself & 15) of the table, whose quarters are the same; 0 above 127.
inline Words look_up(Words table, Words a) {
  return {_mm256_shuffle_epi8(table.lo, a.lo), _mm256_shuffle_epi8(table.lo, a.hi)};
}

inline Words times_128(Words a) { return {_mm256_slli_epi32(a.lo, 7), _mm256_slli_epi32(a.hi, 7)}; }
inline int32_t fold_words(Words a) {
  const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
  const __m128i four =
      _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

// By bits, of which those of a NaN are above all others.
inline Lanes larger_magnitude(Lanes a, Lanes b) {
  return {_mm256_castsi256_ps(_mm256_max_epi32(magnitude_bits(a.lo), magnitude_bits(b.lo))),
          _mm256_castsi256_ps(_mm256_max_epi32(magnitude_bits(a.hi), magnitude_bits(b.hi)))};
}

template <bool kUnsigned>
inline __m256i store_parts(const __m256 (&x)[4], int8_t* high, int8_t* low) {
  __m256i n[4], h[4], l[4];
  for (int b = 0; b < 4; ++b) {
    n[b] = _mm256_cvtps_epi32(x[b]);
    if constexpr (kUnsigned) {
      h[b] = _mm256_srai_epi32(n[b], 7);
      l[b] = _mm256_and_si256(n[b], _mm256_set1_epi32(127));
    } else {
      h[b] = _mm256_srai_epi32(_mm256_add_epi32(n[b], _mm256_set1_epi32(64)), 7);
      l[b] = _mm256_sub_epi32(n[b], _mm256_slli_epi32(h[b], 7));
    }
  }
  _mm256_storeu_si256((__m256i*)high, _mm256_packs_epi16(_mm256_packs_epi32(h[0], h[1]),
                                                         _mm256_packs_epi32(h[2], h[3])));
  _mm256_storeu_si256((__m256i*)low, _mm256_packs_epi16(_mm256_packs_epi32(l[0], l[1]),
                                                        _mm256_packs_epi32(l[2], l[3])));
  return _mm256_add_epi32(_mm256_add_epi32(n[0], n[1]), _mm256_add_epi32(n[2], n[3]));
}
// 64 floats of at most 16,256 rounded to n = 128 * high + low, nearest and ties to even, as signed
// bytes: lane 4 i + j of x[b] goes to byte 16 i + 4 b + j. Returns the sums of n. kUnsigned: where
// n is never negative, neither becomes the low byte.
template <bool kUnsigned>
inline Words store_parts(const Lanes (&x)[4], int8_t* high, int8_t* low) {
  const __m256 lo[4] = {x[0].lo, x[1].lo, x[2].lo, x[3].lo};
  const __m256 hi[4] = {x[0].hi, x[1].hi, x[2].hi, x[3].hi};
  return {store_parts<kUnsigned>(lo, high, low), store_parts<kUnsigned>(hi, high + 32, low + 32)};
}
