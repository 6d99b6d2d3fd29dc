// Sums of products of bytes with an instruction that multiplies unsigned bytes by signed bytes and
// adds neighbours to 16-bit sums, which saturate. Included inside the anonymous namespace of a file
// that defines multiply_pairs (this instruction), add_pairs, add_neighbours (of 16-bit sums),
// flip_sign_bits, magnitude_bytes and copy_sign.

// Weights of eight bits, stored as weight + 128. A pair of 255 * 127 would saturate, and a pair of
// 128 * 127 does not: so the weight's sign is moved to the input.
struct ByteDot {
  static constexpr int32_t kZero = 0;
  static constexpr int kMaxRows = 4;
  struct Weights {
    Words signed_bytes, magnitude;
  };
  using Sum = Words;
  static Weights prepare(Words stored) {
    const Words weights = flip_sign_bits(stored);
    return {weights, magnitude_bytes(weights)};
  }
  static Sum start(Words) { return zero_words(); }
  static Sum add(Sum sum, Weights weights, Words x) {
    const Words pairs = multiply_pairs(weights.magnitude, negate_where_negative(x, weights));
    return add_words(sum, add_neighbours(pairs));
  }
  static Words finish(Sum sum, Words) { return sum; }

 private:
  static Words negate_where_negative(Words x, Weights weights) {
    return copy_sign(x, weights.signed_bytes);
  }
};

// Weights of four bits, 0 to 15: the eight pairs of a group sum up to 8 * 2 * 15 * 127 = 30,480,
// which 16 bits hold.
struct NibbleDot {
  static constexpr int kMaxRows = 6;
  using Sum = Words;
  static Sum start(Words) { return zero_words(); }
  static Sum add(Sum sum, Words weights, Words x) {
    return add_pairs(sum, multiply_pairs(weights, x));
  }
  static Words finish(Sum sum, Words correction) {
    return add_words(add_neighbours(sum), correction);
  }
};

// Codes that are signed bytes, times weights of 0 to 127: a pair comes to 2 * 127 * 127 = 32,258,
// which 16 bits hold.
struct WeightDot {
  static Words add(Words sum, Words codes, Words weights) {
    return add_words(sum, add_neighbours(multiply_pairs(weights, codes)));
  }
};
