// Sums of products of bytes with an instruction that multiplies four unsigned bytes by four signed
// bytes and adds the products to a 32-bit sum. Included inside the anonymous namespace of a file
// that defines dot(sum, unsigned, signed).

// 32 registers hold the integer and the float sums of 3 rows x 64 columns. 16 registers hold only
// integer sums, of 6 rows x 16 columns.
constexpr int kDotRows = kLanesRegisters == 32 ? 3 : 6;

// Weights of eight bits, stored as weight + 128. The sum starts at -128 times the sum of the
// inputs.
struct ByteDot {
  static constexpr int32_t kZero = 128;
  static constexpr int kMaxRows = kDotRows;
  using Weights = Words;
  using Sum = Words;
  static Weights prepare(Words stored) { return stored; }
  static Sum start(Words correction) { return correction; }
  static Sum add(Sum sum, Weights weights, Words x) { return dot(sum, weights, x); }
  static Words finish(Sum sum, Words) { return sum; }
};

// Weights of four bits, 0 to 15.
struct NibbleDot {
  static constexpr int kMaxRows = kDotRows;
  using Sum = Words;
  static Sum start(Words correction) { return correction; }
  static Sum add(Sum sum, Words weights, Words x) { return dot(sum, weights, x); }
  static Words finish(Sum sum, Words) { return sum; }
};

// Codes that are signed bytes, times weights of 0 to 127.
struct WeightDot {
  static Words add(Words sum, Words codes, Words weights) { return dot(sum, weights, codes); }
};
