// bf16 products in 512-bit registers without vdpbf16ps: both halves of a word are widened to floats
// and fused in the order of that instruction. Included inside the anonymous namespace of a file,
// after lanes.inl.

// A word holds elements k (low half) and k + 1 (high half); part 0 is the high one.
struct Bf16Format {
  static constexpr int kDepth = 2;
  static constexpr int kParts = 2;
  static constexpr int64_t kElementBytes = 2;
  static constexpr int64_t kVectorBytes = 64;
  template <int kPart>
  static Lanes half(__m512i words) {
    if constexpr (kPart == 0) {
      return {_mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(0xffff0000)))};
    } else {
      return {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16))};
    }
  }
  template <int kPart>
  static Lanes weight(const char* p) {
    return half<kPart>(_mm512_loadu_si512(p));
  }
  static Lanes fuse(Lanes weight, Lanes input, Lanes sum) { return fma(weight, input, sum); }
};
