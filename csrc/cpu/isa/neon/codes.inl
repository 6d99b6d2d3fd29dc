// Operations on bits and bytes of Words for attention over codes, in four 128-bit registers
// (templates/code_tiles.inl). Included inside the anonymous namespace of a file, after lanes.inl.

// body of each quarter.
template <class Body>
inline Words over_quarters(Words a, const Body& body) {
  return {body(a.v0), body(a.v1), body(a.v2), body(a.v3)};
}
// Of 16-bit halves: bits that come from the neighbouring byte are for the caller to mask.
inline Words shift_left(Words a, int64_t bits) {
  const int16x8_t n = vdupq_n_s16(static_cast<int16_t>(bits));
  return over_quarters(a, [&](int32x4_t v) {
    return vreinterpretq_s32_u16(vshlq_u16(vreinterpretq_u16_s32(v), n));
  });
}
inline Words shift_right(Words a, int64_t bits) { return shift_left(a, -bits); }
// Of each byte the bits of kMask from a, the others from b.
template <uint8_t kMask>
inline Words merge_bits(Words a, Words b) {
  const uint32x4_t mask = vreinterpretq_u32_u8(vdupq_n_u8(kMask));
  return {vbslq_s32(mask, a.v0, b.v0), vbslq_s32(mask, a.v1, b.v1), vbslq_s32(mask, a.v2, b.v2),
          vbslq_s32(mask, a.v3, b.v3)};
}
// Each byte of at most 15 becomes that byte of the table, whose quarters are the same.
inline Words look_up(Words table, Words a) {
  const uint8x16_t bytes = vreinterpretq_u8_s32(table.v0);
  return over_quarters(a, [&](int32x4_t v) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(bytes, vreinterpretq_u8_s32(v)));
  });
}

inline Words times_128(Words a) {
  return over_quarters(a, [](int32x4_t v) { return vshlq_n_s32(v, 7); });
}
inline int32_t fold_words(Words a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.v0, a.v1), vaddq_s32(a.v2, a.v3)));
}

inline float32x4_t larger_magnitude(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_u32(
      vmaxq_u32(vreinterpretq_u32_f32(vabsq_f32(a)), vreinterpretq_u32_f32(vabsq_f32(b))));
}
// By bits, of which those of a NaN are above all others.
inline Lanes larger_magnitude(Lanes a, Lanes b) {
  return {larger_magnitude(a.v0, b.v0), larger_magnitude(a.v1, b.v1), larger_magnitude(a.v2, b.v2),
          larger_magnitude(a.v3, b.v3)};
}

inline int8x16_t narrow(const int32x4_t (&x)[4]) {
  return vcombine_s8(vmovn_s16(vcombine_s16(vmovn_s32(x[0]), vmovn_s32(x[1]))),
                     vmovn_s16(vcombine_s16(vmovn_s32(x[2]), vmovn_s32(x[3]))));
}
template <bool kUnsigned>
inline int32x4_t store_parts(float32x4_t x0, float32x4_t x1, float32x4_t x2, float32x4_t x3,
                             int8_t* high, int8_t* low) {
  const int32x4_t n[4] = {vcvtnq_s32_f32(x0), vcvtnq_s32_f32(x1), vcvtnq_s32_f32(x2),
                          vcvtnq_s32_f32(x3)};
  int32x4_t h[4], l[4];
  for (int b = 0; b < 4; ++b) {
    h[b] = vshrq_n_s32(kUnsigned ? n[b] : vaddq_s32(n[b], vdupq_n_s32(64)), 7);
    l[b] = vsubq_s32(n[b], vshlq_n_s32(h[b], 7));
  }
  vst1q_s8(high, narrow(h));
  vst1q_s8(low, narrow(l));
  return vaddq_s32(vaddq_s32(n[0], n[1]), vaddq_s32(n[2], n[3]));
}
// 64 floats of at most 16,256 rounded to n = 128 * high + low, nearest and ties to even, as signed
// bytes: lane 4 i + j of x[b] goes to byte 16 i + 4 b + j. Returns the sums of n. kUnsigned: where
// n is never negative, neither becomes the low byte.
template <bool kUnsigned>
inline Words store_parts(const Lanes (&x)[4], int8_t* high, int8_t* low) {
  return {store_parts<kUnsigned>(x[0].v0, x[1].v0, x[2].v0, x[3].v0, high, low),
          store_parts<kUnsigned>(x[0].v1, x[1].v1, x[2].v1, x[3].v1, high + 16, low + 16),
          store_parts<kUnsigned>(x[0].v2, x[1].v2, x[2].v2, x[3].v2, high + 32, low + 32),
          store_parts<kUnsigned>(x[0].v3, x[1].v3, x[2].v3, x[3].v3, high + 48, low + 48)};
}
