// Products of bytes in 512-bit registers without an instruction for dot products, for
// dots_pairs.inl. Included inside the anonymous namespace of a file, after lanes.inl.

inline Words multiply_pairs(Words unsigned_bytes, Words signed_bytes) {
  return {_mm512_maddubs_epi16(unsigned_bytes.v, signed_bytes.v)};
}
inline Words add_pairs(Words a, Words b) { return {_mm512_add_epi16(a.v, b.v)}; }
inline Words add_neighbours(Words pairs) {
  return {_mm512_madd_epi16(pairs.v, _mm512_set1_epi16(1))};
}
inline Words flip_sign_bits(Words bytes) {
  return {_mm512_xor_si512(bytes.v, _mm512_set1_epi8(-128))};
}
inline Words magnitude_bytes(Words a) { return {_mm512_abs_epi8(a.v)}; }
// x, negated where `sign` is negative.
inline Words copy_sign(Words x, Words sign) {
  const __mmask64 negative = _mm512_movepi8_mask(sign.v);
  return {_mm512_mask_sub_epi8(x.v, negative, _mm512_setzero_si512(), x.v)};
}
