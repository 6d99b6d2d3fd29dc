// bf16 products in 128-bit registers: both halves of a word are widened to floats and fused in
// turn. Included inside the anonymous namespace of a file, after lanes.inl.

// A word holds elements k (low half) and k + 1 (high half); part 0 is the high one.
struct Bf16Format {
  static constexpr int kDepth = 2;
  static constexpr int kParts = 2;
  static constexpr int64_t kElementBytes = 2;
  static constexpr int64_t kVectorBytes = 64;
  template <int kPart>
  static float32x4_t half(uint32x4_t words) {
    if constexpr (kPart == 0) {
      return vreinterpretq_f32_u32(vandq_u32(words, vdupq_n_u32(0xffff0000)));
    } else {
      return vreinterpretq_f32_u32(vshlq_n_u32(words, 16));
    }
  }
  template <int kPart>
  static Lanes weight(const char* p) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(p);
    return {half<kPart>(vld1q_u32(words)), half<kPart>(vld1q_u32(words + 4)),
            half<kPart>(vld1q_u32(words + 8)), half<kPart>(vld1q_u32(words + 12))};
  }
  static Lanes fuse(Lanes weight, Lanes input, Lanes sum) { return fma(weight, input, sum); }
};
