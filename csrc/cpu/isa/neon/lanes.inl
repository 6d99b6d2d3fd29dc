// Sixteen floats in four 128-bit registers. Included inside the anonymous namespace of each file
// for 64-bit Arm.

struct Lanes {
  float32x4_t v0, v1, v2, v3;
};

inline Lanes set(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
inline Lanes zero() { return set(0.0f); }
inline Lanes load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
inline Lanes broadcast(const float* p) {
  const float32x4_t v = vld1q_dup_f32(p);
  return {v, v, v, v};
}
inline void store(float* p, Lanes a) {
  vst1q_f32(p, a.v0);
  vst1q_f32(p + 4, a.v1);
  vst1q_f32(p + 8, a.v2);
  vst1q_f32(p + 12, a.v3);
}

inline Lanes add(Lanes a, Lanes b) {
  return {vaddq_f32(a.v0, b.v0), vaddq_f32(a.v1, b.v1), vaddq_f32(a.v2, b.v2),
          vaddq_f32(a.v3, b.v3)};
}
inline Lanes sub(Lanes a, Lanes b) {
  return {vsubq_f32(a.v0, b.v0), vsubq_f32(a.v1, b.v1), vsubq_f32(a.v2, b.v2),
          vsubq_f32(a.v3, b.v3)};
}
inline Lanes mul(Lanes a, Lanes b) {
  return {vmulq_f32(a.v0, b.v0), vmulq_f32(a.v1, b.v1), vmulq_f32(a.v2, b.v2),
          vmulq_f32(a.v3, b.v3)};
}
inline Lanes div(Lanes a, Lanes b) {
  return {vdivq_f32(a.v0, b.v0), vdivq_f32(a.v1, b.v1), vdivq_f32(a.v2, b.v2),
          vdivq_f32(a.v3, b.v3)};
}
inline Lanes max(Lanes a, Lanes b) {
  return {vmaxnmq_f32(a.v0, b.v0), vmaxnmq_f32(a.v1, b.v1), vmaxnmq_f32(a.v2, b.v2),
          vmaxnmq_f32(a.v3, b.v3)};
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {vfmaq_f32(c.v0, a.v0, b.v0), vfmaq_f32(c.v1, a.v1, b.v1), vfmaq_f32(c.v2, a.v2, b.v2),
          vfmaq_f32(c.v3, a.v3, b.v3)};
}

// a < b ? yes : no, so `no` where either is NaN.
inline Lanes select_less(Lanes a, Lanes b, Lanes yes, Lanes no) {
  return {vbslq_f32(vcltq_f32(a.v0, b.v0), yes.v0, no.v0),
          vbslq_f32(vcltq_f32(a.v1, b.v1), yes.v1, no.v1),
          vbslq_f32(vcltq_f32(a.v2, b.v2), yes.v2, no.v2),
          vbslq_f32(vcltq_f32(a.v3, b.v3), yes.v3, no.v3)};
}

inline Lanes magnitude(Lanes a) {
  return {vabsq_f32(a.v0), vabsq_f32(a.v1), vabsq_f32(a.v2), vabsq_f32(a.v3)};
}
inline Lanes square_root(Lanes a) {
  return {vsqrtq_f32(a.v0), vsqrtq_f32(a.v1), vsqrtq_f32(a.v2), vsqrtq_f32(a.v3)};
}

template <int kStride>
inline float32x4_t butterfly(float32x4_t a) {
  static constexpr uint32_t kUpper[4] = {0, kStride == 1 ? ~0u : 0, kStride == 2 ? ~0u : 0, ~0u};
  const float32x4_t other = kStride == 1 ? vrev64q_f32(a) : vextq_f32(a, a, 2);
  return vbslq_f32(vld1q_u32(kUpper), vsubq_f32(other, a), vaddq_f32(other, a));
}
// Lane i and lane i + kStride become their sum and their difference.
template <int kStride>
inline Lanes butterfly(Lanes a) {
  if constexpr (kStride == 8) {
    return {vaddq_f32(a.v0, a.v2), vaddq_f32(a.v1, a.v3), vsubq_f32(a.v0, a.v2),
            vsubq_f32(a.v1, a.v3)};
  } else if constexpr (kStride == 4) {
    return {vaddq_f32(a.v0, a.v1), vsubq_f32(a.v0, a.v1), vaddq_f32(a.v2, a.v3),
            vsubq_f32(a.v2, a.v3)};
  } else {
    return {butterfly<kStride>(a.v0), butterfly<kStride>(a.v1), butterfly<kStride>(a.v2),
            butterfly<kStride>(a.v3)};
  }
}

inline Lanes lane_numbers() {
  static constexpr float kNumbers[kLane] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load(kNumbers);
}

inline float32x4_t scale_by_low_bits(float32x4_t p, float32x4_t shifted) {
  const int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
  return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), exponent));
}
// p * 2^n, where n stands in the low bits of `shifted` and the result is a normal number.
inline Lanes scale_by_low_bits(Lanes p, Lanes shifted) {
  return {scale_by_low_bits(p.v0, shifted.v0), scale_by_low_bits(p.v1, shifted.v1),
          scale_by_low_bits(p.v2, shifted.v2), scale_by_low_bits(p.v3, shifted.v3)};
}

inline float first(Lanes a) { return vgetq_lane_f32(a.v0, 0); }

inline float fold_add(Lanes a) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.v0, a.v2), vaddq_f32(a.v1, a.v3));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

inline float fold_max(Lanes a) {
  return vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(a.v0, a.v1), vmaxnmq_f32(a.v2, a.v3)));
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

inline float32x4_t widen_bf16(uint16x4_t bits) {
  return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}
inline Lanes load_bf16(const uint16_t* p) {
  const uint16x8_t lo = vld1q_u16(p);
  const uint16x8_t hi = vld1q_u16(p + 8);
  return {widen_bf16(vget_low_u16(lo)), widen_bf16(vget_high_u16(lo)), widen_bf16(vget_low_u16(hi)),
          widen_bf16(vget_high_u16(hi))};
}

inline float32x4_t widen_f16(uint16x4_t bits) { return vcvt_f32_f16(vreinterpret_f16_u16(bits)); }
inline Lanes load_f16(const uint16_t* p) {
  const uint16x8_t lo = vld1q_u16(p);
  const uint16x8_t hi = vld1q_u16(p + 8);
  return {widen_f16(vget_low_u16(lo)), widen_f16(vget_high_u16(lo)), widen_f16(vget_low_u16(hi)),
          widen_f16(vget_high_u16(hi))};
}

inline uint16x4_t f16_bits(float32x4_t a) { return vreinterpret_u16_f16(vcvt_f16_f32(a)); }
inline void store_f16(uint16_t* p, Lanes a) {
  vst1_u16(p, f16_bits(a.v0));
  vst1_u16(p + 4, f16_bits(a.v1));
  vst1_u16(p + 8, f16_bits(a.v2));
  vst1_u16(p + 12, f16_bits(a.v3));
}

// Nearest, ties to even; a NaN keeps its upper bits and becomes quiet.
inline uint16x4_t bf16_bits(float32x4_t a) {
  const uint32x4_t bits = vreinterpretq_u32_f32(a);
  const uint32x4_t upper = vshrq_n_u32(bits, 16);
  const uint32x4_t bias = vaddq_u32(vandq_u32(upper, vdupq_n_u32(1)), vdupq_n_u32(0x7fff));
  const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(bits, bias), 16);
  const uint32x4_t quiet = vorrq_u32(upper, vdupq_n_u32(0x40));
  return vmovn_u32(vbslq_u32(vceqq_f32(a, a), rounded, quiet));
}
inline void store_bf16(uint16_t* p, Lanes a) {
  vst1_u16(p, bf16_bits(a.v0));
  vst1_u16(p + 4, bf16_bits(a.v1));
  vst1_u16(p + 8, bf16_bits(a.v2));
  vst1_u16(p + 12, bf16_bits(a.v3));
}

// Sixteen doubles, one for each lane.
struct Sums {
  float64x2_t v[8];
};

inline Sums widen(Lanes a) {
  return {vcvt_f64_f32(vget_low_f32(a.v0)), vcvt_high_f64_f32(a.v0),
          vcvt_f64_f32(vget_low_f32(a.v1)), vcvt_high_f64_f32(a.v1),
          vcvt_f64_f32(vget_low_f32(a.v2)), vcvt_high_f64_f32(a.v2),
          vcvt_f64_f32(vget_low_f32(a.v3)), vcvt_high_f64_f32(a.v3)};
}
inline Sums no_sums() { return widen(zero()); }
inline Sums add(Sums sums, Lanes a) {
  const Sums wide = widen(a);
  for (int i = 0; i < 8; ++i) sums.v[i] = vaddq_f64(sums.v[i], wide.v[i]);
  return sums;
}
// A product of two floats is exact in double, so that fusing it moves no bit.
inline Sums add_product(Sums sums, Lanes a, Lanes b) {
  const Sums x = widen(a), y = widen(b);
  for (int i = 0; i < 8; ++i) sums.v[i] = vfmaq_f64(sums.v[i], x.v[i], y.v[i]);
  return sums;
}
inline void store(double* p, Sums sums) {
  for (int i = 0; i < 8; ++i) vst1q_f64(p + 2 * i, sums.v[i]);
}

inline float32x4_t shift_and_scale(float64x2_t lo, float64x2_t hi, double shift, double factor) {
  const float64x2_t s = vdupq_n_f64(shift), f = vdupq_n_f64(factor);
  return vcvt_high_f32_f64(vcvt_f32_f64(vmulq_f64(vsubq_f64(lo, s), f)),
                           vmulq_f64(vsubq_f64(hi, s), f));
}
// float((double(x) - shift) * factor).
inline Lanes shift_and_scale(Lanes x, double shift, double factor) {
  const Sums wide = widen(x);
  return {shift_and_scale(wide.v[0], wide.v[1], shift, factor),
          shift_and_scale(wide.v[2], wide.v[3], shift, factor),
          shift_and_scale(wide.v[4], wide.v[5], shift, factor),
          shift_and_scale(wide.v[6], wide.v[7], shift, factor)};
}

inline unsigned mask_in_range(float32x4_t x, float32x4_t low, float32x4_t high) {
  static constexpr uint32_t kBits[4] = {1, 2, 4, 8};
  const uint32x4_t inside = vandq_u32(vcleq_f32(low, x), vcltq_f32(x, high));
  return vaddvq_u32(vandq_u32(inside, vld1q_u32(kBits)));
}
// A bit per lane: low <= x < high.
inline unsigned mask_in_range(Lanes x, Lanes low, Lanes high) {
  return mask_in_range(x.v0, low.v0, high.v0) | mask_in_range(x.v1, low.v1, high.v1) << 4 |
         mask_in_range(x.v2, low.v2, high.v2) << 8 | mask_in_range(x.v3, low.v3, high.v3) << 12;
}

// The bits of the integers first, first + 1, ...
inline Lanes count_up(int32_t first) {
  static constexpr int32_t kNumbers[4] = {0, 1, 2, 3};
  const int32x4_t numbers = vaddq_s32(vdupq_n_s32(first), vld1q_s32(kNumbers));
  return {vreinterpretq_f32_s32(numbers), vreinterpretq_f32_s32(vaddq_s32(numbers, vdupq_n_s32(4))),
          vreinterpretq_f32_s32(vaddq_s32(numbers, vdupq_n_s32(8))),
          vreinterpretq_f32_s32(vaddq_s32(numbers, vdupq_n_s32(12)))};
}

// For each mask of four lanes, the bytes of the chosen lanes, then bytes of lane 0.
struct CompressOrder {
  uint8_t of_mask[16][16];
};
constexpr CompressOrder compress_order() {
  CompressOrder order = {};
  for (int mask = 0; mask < 16; ++mask) {
    int place = 0;
    for (int byte = 0; byte < 16; ++byte) {
      if ((mask >> (byte / 4) & 1) != 0) order.of_mask[mask][place++] = static_cast<uint8_t>(byte);
    }
  }
  return order;
}
constexpr CompressOrder kCompressOrder = compress_order();

inline int64_t compress(unsigned mask, float32x4_t a, float* out) {
  const uint8x16_t order = vld1q_u8(kCompressOrder.of_mask[mask]);
  vst1q_f32(out, vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(a), order)));
  return __builtin_popcount(mask);
}
// Writes the lanes of the mask side by side and returns their number. The rest of the 16 places is
// undefined.
inline int64_t compress(unsigned mask, Lanes a, float* out) {
  int64_t kept = compress(mask & 15, a.v0, out);
  kept += compress(mask >> 4 & 15, a.v1, out + kept);
  kept += compress(mask >> 8 & 15, a.v2, out + kept);
  return kept + compress(mask >> 12, a.v3, out + kept);
}

// Sixteen 32-bit integers, or 64 bytes.
struct Words {
  int32x4_t v0, v1, v2, v3;
};

inline Words set_words(int32_t x) {
  const int32x4_t v = vdupq_n_s32(x);
  return {v, v, v, v};
}
inline Words zero_words() { return set_words(0); }
inline int32x4_t load_word_quarter(const char* p) {
  return vreinterpretq_s32_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(p)));
}
inline Words load_words(const char* p) {
  return {load_word_quarter(p), load_word_quarter(p + 16), load_word_quarter(p + 32),
          load_word_quarter(p + 48)};
}
inline Words load_word(const int32_t* p) { return set_words(*p); }
// -kFactor * a.
template <int32_t kFactor>
inline Words negative_multiple(Words a) {
  return {vmulq_n_s32(a.v0, -kFactor), vmulq_n_s32(a.v1, -kFactor), vmulq_n_s32(a.v2, -kFactor),
          vmulq_n_s32(a.v3, -kFactor)};
}
inline Words broadcast_word(const int8_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return set_words(word);
}
inline int32x4_t low_nibbles(int32x4_t a) {
  return vreinterpretq_s32_u8(vandq_u8(vreinterpretq_u8_s32(a), vdupq_n_u8(15)));
}
inline Words low_nibbles(Words a) {
  return {low_nibbles(a.v0), low_nibbles(a.v1), low_nibbles(a.v2), low_nibbles(a.v3)};
}
inline int32x4_t high_nibbles(int32x4_t a) {
  return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(a), 4));
}
inline Words high_nibbles(Words a) {
  return {high_nibbles(a.v0), high_nibbles(a.v1), high_nibbles(a.v2), high_nibbles(a.v3)};
}
inline int32x4_t flip_sign_bits(int32x4_t a) {
  return vreinterpretq_s32_u8(veorq_u8(vreinterpretq_u8_s32(a), vdupq_n_u8(0x80)));
}
inline Words flip_sign_bits(Words bytes) {
  return {flip_sign_bits(bytes.v0), flip_sign_bits(bytes.v1), flip_sign_bits(bytes.v2),
          flip_sign_bits(bytes.v3)};
}
inline Lanes to_floats(Words a) {
  return {vcvtq_f32_s32(a.v0), vcvtq_f32_s32(a.v1), vcvtq_f32_s32(a.v2), vcvtq_f32_s32(a.v3)};
}
inline Words add_words(Words a, Words b) {
  return {vaddq_s32(a.v0, b.v0), vaddq_s32(a.v1, b.v1), vaddq_s32(a.v2, b.v2),
          vaddq_s32(a.v3, b.v3)};
}
// Hides from the compiler that the words have not changed.
inline void hide(Words& a) { asm("" : "+w"(a.v0), "+w"(a.v1), "+w"(a.v2), "+w"(a.v3)); }

inline uint32x4_t largest_bits(Lanes a) {
  const uint32x4_t bits0 = vreinterpretq_u32_f32(vabsq_f32(a.v0));
  const uint32x4_t bits1 = vreinterpretq_u32_f32(vabsq_f32(a.v1));
  const uint32x4_t bits2 = vreinterpretq_u32_f32(vabsq_f32(a.v2));
  const uint32x4_t bits3 = vreinterpretq_u32_f32(vabsq_f32(a.v3));
  return vmaxq_u32(vmaxq_u32(bits0, bits1), vmaxq_u32(bits2, bits3));
}
// The largest magnitude; NaN where there is one, for its bits are above those of infinity.
inline float largest_magnitude(Lanes a, Lanes b) {
  const uint32_t largest = vmaxvq_u32(vmaxq_u32(largest_bits(a), largest_bits(b)));
  float value;
  __builtin_memcpy(&value, &largest, sizeof value);
  return value;
}

inline Words round_to_words(Lanes a) {
  return {vcvtnq_s32_f32(a.v0), vcvtnq_s32_f32(a.v1), vcvtnq_s32_f32(a.v2), vcvtnq_s32_f32(a.v3)};
}
inline Words truncate_to_words(Lanes a) {
  return {vcvtq_s32_f32(a.v0), vcvtq_s32_f32(a.v1), vcvtq_s32_f32(a.v2), vcvtq_s32_f32(a.v3)};
}
inline int8x16_t low_bytes(Words a) {
  const int16x8_t lo = vcombine_s16(vmovn_s32(a.v0), vmovn_s32(a.v1));
  const int16x8_t hi = vcombine_s16(vmovn_s32(a.v2), vmovn_s32(a.v3));
  return vcombine_s8(vmovn_s16(lo), vmovn_s16(hi));
}
inline void store_low_bytes(uint8_t* p, Words a) { vst1q_u8(p, vreinterpretq_u8_s8(low_bytes(a))); }
// 32 floats of at most 127 rounded to bytes, nearest and ties to even; returns their sum.
inline int32_t store_bytes(int8_t* p, Lanes a, Lanes b) {
  const Words low = round_to_words(a), high = round_to_words(b);
  vst1q_s8(p, low_bytes(low));
  vst1q_s8(p + kLane, low_bytes(high));
  const Words sum = add_words(low, high);
  return vaddvq_s32(vaddq_s32(vaddq_s32(sum.v0, sum.v1), vaddq_s32(sum.v2, sum.v3)));
}

// While it lives, denormal inputs and results of this thread count as zero (bit FZ of FPCR).
// Arm tests a result before it is rounded: a result just below 2^-126 that would round up to it is
// zero here, and 2^-126 in the generic kernels.
struct FlushDenormals {
  uint64_t saved;
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(saved));
    asm volatile("msr fpcr, %0" : : "r"(saved | (uint64_t{1} << 24)) : "memory");
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(saved) : "memory"); }
};

// Of 32 registers, 6 rows x 1 vector take 24 for sums, 4 for weights, 1 for an input.
constexpr int tile_vectors(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
constexpr int kProbeChains = 6;
constexpr int kLanesRegisters = 8;  // each takes four of the 32

inline uint64_t probe_read(const void* data, int64_t bytes) {
  const uint64_t* p = static_cast<const uint64_t*>(data);
  uint64x2_t sum[8];
  for (int w = 0; w < 8; ++w) sum[w] = vdupq_n_u64(0);
  for (int64_t i = 0; i < bytes / 8; i += 16) {
    for (int w = 0; w < 8; ++w) sum[w] = vaddq_u64(sum[w], vld1q_u64(p + i + 2 * w));
  }
  for (int w = 1; w < 8; ++w) sum[0] = vaddq_u64(sum[0], sum[w]);
  return vgetq_lane_u64(sum[0], 0) + vgetq_lane_u64(sum[0], 1);
}
