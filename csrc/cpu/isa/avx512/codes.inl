// Operations on bits and bytes of Words for attention over codes, in 512-bit registers
// (templates/code_tiles.inl). Included inside the anonymous namespace of a file, after lanes.inl.

using Halves512 = uint16_t __attribute__((vector_size(64)));

// Of 16-bit halves: bits that come from the neighbouring byte are for the caller to mask.
inline Words shift_right(Words a, int64_t bits) {
  return {(__m512i)((Halves512)a.v >> static_cast<uint16_t>(bits))};
}
inline Words shift_left(Words a, int64_t bits) {
  return {(__m512i)((Halves512)a.v << static_cast<uint16_t>(bits))};
}
// Of each byte the bits of kMask from a, the others from b.
template <uint8_t kMask>
inline Words merge_bits(Words a, Words b) {
  return {_mm512_ternarylogic_epi32(_mm512_set1_epi8(static_cast<char>(kMask)), a.v, b.v, 0xca)};
}
// Each byte becomes byte (itself & 15) of the table, whose quarters are the same; 0 above 127.
inline Words look_up(Words table, Words a) { return {_mm512_shuffle_epi8(table.v, a.v)}; }

inline Words times_128(Words a) { return {_mm512_slli_epi32(a.v, 7)}; }
inline int32_t fold_words(Words a) { return _mm512_reduce_add_epi32(a.v); }

// By bits, of which those of a NaN are above all others.
inline Lanes larger_magnitude(Lanes a, Lanes b) {
  const __m512i sign_off = _mm512_set1_epi32(0x7fffffff);
  return {
      _mm512_castsi512_ps(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a.v), sign_off),
                                           _mm512_and_si512(_mm512_castps_si512(b.v), sign_off)))};
}

// 64 floats of at most 16,256 rounded to n = 128 * high + low, nearest and ties to even, as signed
// bytes: lane 4 i + j of x[b] goes to byte 16 i + 4 b + j. Returns the sums of n. kUnsigned: where
// n is never negative, neither becomes the low byte.
template <bool kUnsigned>
inline Words store_parts(const Lanes (&x)[4], int8_t* high, int8_t* low) {
  __m512i n[4], h[4], l[4];
  for (int b = 0; b < 4; ++b) {
    n[b] = _mm512_cvtps_epi32(x[b].v);
    if constexpr (kUnsigned) {
      h[b] = _mm512_srai_epi32(n[b], 7);
      l[b] = _mm512_and_si512(n[b], _mm512_set1_epi32(127));
    } else {
      h[b] = _mm512_srai_epi32(_mm512_add_epi32(n[b], _mm512_set1_epi32(64)), 7);
      l[b] = _mm512_sub_epi32(n[b], _mm512_slli_epi32(h[b], 7));
    }
  }
  _mm512_storeu_si512(
      high, _mm512_packs_epi16(_mm512_packs_epi32(h[0], h[1]), _mm512_packs_epi32(h[2], h[3])));
  _mm512_storeu_si512(
      low, _mm512_packs_epi16(_mm512_packs_epi32(l[0], l[1]), _mm512_packs_epi32(l[2], l[3])));
  return {_mm512_add_epi32(_mm512_add_epi32(n[0], n[1]), _mm512_add_epi32(n[2], n[3]))};
}
