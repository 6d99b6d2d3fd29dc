// bf16 products in 256-bit registers: both halves of a word are widened to floats and fused in
// turn. Included inside the anonymous namespace of a file, after lanes.inl.

// A word holds elements k (low half) and k + 1 (high half); part 0 is the high one.
struct Bf16Format {
  static constexpr int kDepth = 2;
  static constexpr int kParts = 2;
  static constexpr int64_t kElementBytes = 2;
  static constexpr int64_t kVectorBytes = 64;
  template <int kPart>
  static __m256 half(__m256i words) {
    if constexpr (kPart == 0) {
      return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(0xffff0000)));
    } else {
      return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
    }
  }
  template <int kPart>
  static Lanes weight(const char* p) {
    const __m256i* words = reinterpret_cast<const __m256i*>(p);
    return {half<kPart>(_mm256_loadu_si256(words)), half<kPart>(_mm256_loadu_si256(words + 1))};
  }
  // In assembly, so that the sum keeps its register. From the intrinsic, gcc 12 makes forms that
  // put the result into the input's register, and 16 registers are too few for that.
  static Lanes fuse(Lanes weight, Lanes input, Lanes sum) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum.lo) : "x"(weight.lo), "x"(input.lo));
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum.hi) : "x"(weight.hi), "x"(input.hi));
    return sum;
  }
};
