// How coded keys and values become bytes in registers, for each codec (cpu/coded_attend_args.h).
// Included inside the anonymous namespace of a file, after tiles.inl and the file's lanes.inl and
// codes.inl, which define shift_right and shift_left (of 16-bit halves), merge_bits and look_up.
//
// Codes are taken in pairs of registers, 2 i and 2 i + 1. A pair of keys is eight dimensions of 16
// tokens, a pair of values 32 dimensions of four tokens. A pair lies within one stored register, or
// is two.

struct CodeTable {
  uint8_t bytes[64];
};
// The integer of each index, plus `zero`. of(index): the integer.
template <class Integer>
constexpr CodeTable code_table(int zero, const Integer& of) {
  CodeTable table = {};
  for (int i = 0; i < 64; ++i) table.bytes[i] = static_cast<uint8_t>(of(i % 16) + zero);
  return table;
}

// Turns a pair of code registers into two Words of bytes, integer + kZero, by the bits of a code.
// of(code): the integer of a code below 2^kBits.
template <int kBits, int kZero, class Integer>
struct CodePairs;

// Keys are stored as integer + 128, values as they are.
template <int kZero, class Integer>
struct CodePairs<8, kZero, Integer> {
  void load(const char* codes, int64_t, int64_t pair, Words (&out)[2]) const {
    for (int i = 0; i < 2; ++i) {
      out[i] = load_words(codes + (2 * pair + i) * kLaneBytes);
    }
  }
};

template <int kZero, class Integer>
struct CodePairs<4, kZero, Integer> {
  static constexpr CodeTable kTable = code_table(kZero, [](int i) { return Integer::of(i); });
  Words table = load_words(reinterpret_cast<const char*>(kTable.bytes));
  void load(const char* codes, int64_t, int64_t pair, Words (&out)[2]) const {
    const Words stored = load_words(codes + pair * kLaneBytes);
    out[0] = look_up(table, low_nibbles(stored));
    out[1] = look_up(table, high_nibbles(stored));
  }
};

// Half a stored byte holds the two bits of both registers. Each table uses its own two bits.
template <int kZero, class Integer>
struct CodePairs<2, kZero, Integer> {
  static constexpr CodeTable kFirst = code_table(kZero, [](int i) { return Integer::of(i & 3); });
  static constexpr CodeTable kSecond =
      code_table(kZero, [](int i) { return Integer::of(i >> 2); });
  Words first = load_words(reinterpret_cast<const char*>(kFirst.bytes));
  Words second = load_words(reinterpret_cast<const char*>(kSecond.bytes));
  void load(const char* codes, int64_t, int64_t pair, Words (&out)[2]) const {
    const Words stored = load_words(codes + pair / 2 * kLaneBytes);
    const Words both = low_nibbles(shift_right(stored, pair % 2 * 4));
    out[0] = look_up(first, both);
    out[1] = look_up(second, both);
  }
};

// The same, and the upper bit replaces a bit that the table does not use: bit 2 beside the bits of
// the first register, bit 0 beside the bits of the second.
template <int kZero, class Integer>
struct CodePairs<3, kZero, Integer> {
  static constexpr CodeTable kFirst = code_table(kZero, [](int i) { return Integer::of(i & 7); });
  static constexpr CodeTable kSecond =
      code_table(kZero, [](int i) { return Integer::of(i >> 2 | (i & 1) << 2); });
  Words first = load_words(reinterpret_cast<const char*>(kFirst.bytes));
  Words second = load_words(reinterpret_cast<const char*>(kSecond.bytes));
  void load(const char* codes, int64_t coded_dim, int64_t pair, Words (&out)[2]) const {
    const Words lower = load_words(codes + pair / 2 * kLaneBytes);
    const Words upper = load_words(codes + (coded_dim / kLane + pair / 4) * kLaneBytes);
    const Words both = low_nibbles(shift_right(lower, pair % 2 * 4));
    const int64_t bit = pair % 4 * 2;
    const Words beside = bit == 0 ? shift_left(upper, 2) : shift_right(upper, bit - 2);
    out[0] = look_up(first, merge_bits<4>(beside, both));
    out[1] = look_up(second, merge_bits<1>(shift_right(upper, bit + 1), both));
  }
};

// The integer of each code of a codec: from its codebook, or counted from -2^(bits - 1).
template <KvCodec kCodec>
struct CodeInteger {
  static constexpr int of(int code) {
    constexpr Codebook kBook = codec_info(kCodec).book;
    return kBook.integers != nullptr ? kBook.integers[code] : code - (1 << (code_bits(kCodec) - 1));
  }
};

// A codec in the form that the products use. kGrouped: each scale covers 32 dimensions, and queries
// are rounded to two bytes rather than one. kSigned: scales may be negative.
template <KvCodec kCodec, int kZero>
struct CodeFormat : CodePairs<code_bits(kCodec), kZero, CodeInteger<kCodec>> {
  static constexpr int kBits = code_bits(kCodec);
  static constexpr bool kGrouped = is_grouped(kCodec);
  static constexpr bool kSigned = codec_info(kCodec).signed_scales;
};
