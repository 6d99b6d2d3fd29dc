// Sums of products of bytes with an operation that multiplies four signed bytes by four signed
// bytes and adds the products to a 32-bit sum. Included inside the anonymous namespace of a file
// that defines flip_sign_bits and dot(sum, weights, inputs). The inputs are never -128.

// Sums of four rows take 16 of 32 registers. With more rows gcc 12 keeps other values in memory.
constexpr int kSignedRows = 4;

// Weights of eight bits, stored as weight + 128: with the upper bit flipped a byte is the weight.
struct ByteDot {
  static constexpr int32_t kZero = 0;
  static constexpr int kMaxRows = kSignedRows;
  using Sum = Words;
  static Words prepare(Words stored) { return flip_sign_bits(stored); }
  static Sum start(Words) { return zero_words(); }
  static Sum add(Sum sum, Words weights, Words x) { return dot(sum, weights, x); }
  static Words finish(Sum sum, Words) { return sum; }
};

// Weights of four bits, 0 to 15.
struct NibbleDot {
  static constexpr int kMaxRows = kSignedRows;
  using Sum = Words;
  static Sum start(Words correction) { return correction; }
  static Sum add(Sum sum, Words weights, Words x) { return dot(sum, weights, x); }
  static Words finish(Sum sum, Words) { return sum; }
};

// Codes that are signed bytes, times weights of 0 to 127.
struct WeightDot {
  static Words add(Words sum, Words codes, Words weights) { return dot(sum, codes, weights); }
};
