// Coding of keys and values (cpu/coded_attend_args.h). Sixteen tokens are the lanes, and everything
// about a token happens in its own lane. Included inside the anonymous namespace of a file. Its
// lanes.inl defines magnitude, square_root, round_to_words, truncate_to_words and store_low_bytes.

// +-0 where all n coordinates are finite, else NaN.
inline Lanes not_finite(const float* x, int64_t n) {
  Lanes sum = zero();
  for (int64_t i = 0; i < n; ++i) sum = add(sum, mul(load(x + i * kLane), zero()));
  return sum;
}
inline Lanes select_finite(Lanes not_finite, Lanes yes, Lanes no) {
  return select_less(not_finite, set(1.0f), yes, no);
}

void encode_int8(const float* x, int64_t n, uint8_t* codes, uint16_t* scales) {
  const Lanes most = set(127.0f), least = set(-127.0f), bad = not_finite(x, n);
  Lanes largest = zero();
  for (int64_t i = 0; i < n; ++i) {
    const Lanes size = magnitude(load(x + i * kLane));
    largest = select_less(largest, size, size, largest);
  }
  store_f16(scales, select_finite(bad, div(largest, most), set(__builtin_nanf(""))));
  const Lanes scale = load_f16(scales);
  const Lanes divisor = select_less(zero(), scale, scale, set(kInfinity));
  for (int64_t i = 0; i < n; ++i) {
    Lanes code = div(load(x + i * kLane), divisor);
    code = select_less(code, least, least, select_less(most, code, most, code));
    code = select_finite(bad, code, zero());
    store_low_bytes(codes + i * kLane, add_words(round_to_words(code), set_words(128)));
  }
}

void encode_q4_0(const float* x, int64_t n, uint8_t* codes, uint16_t* scales) {
  const Lanes most = set(15.0f), middle = set(8.5f);
  for (int64_t group = 0; group < n / kGroupValues; ++group) {
    const Lanes bad = not_finite(x, kGroupValues);
    Lanes largest = zero(), extreme = zero();
    for (int64_t i = 0; i < kGroupValues; ++i) {
      const Lanes value = load(x + i * kLane), size = magnitude(value);
      extreme = select_less(largest, size, value, extreme);
      largest = select_less(largest, size, size, largest);
    }
    const Lanes tiny = set(0x1p-120f);
    const Lanes scale = select_less(largest, tiny, zero(), mul(extreme, set(-0.125f)));
    const Lanes inverse = select_less(largest, tiny, zero(), div(set(1.0f), scale));
    store_f16(scales, select_finite(bad, scale, set(__builtin_nanf(""))));
    for (int64_t i = 0; i < kGroupValues; ++i, x += kLane, codes += kLane) {
      Lanes code = add(mul(load(x), inverse), middle);
      code = select_finite(bad, select_less(most, code, most, code), middle);
      store_low_bytes(codes, truncate_to_words(code));
    }
    scales += kLane;
  }
}

// The codebook of a codec is symmetric: it has kLevels magnitudes, and each code has a sign.
template <KvCodec kCodec>
struct CodecBook {
  static constexpr Codebook kBook = codec_info(kCodec).book;
  static constexpr int kLevels = 1 << (code_bits(kCodec) - 1);
  static constexpr float kDeviation = kBook.deviation;
  static constexpr float level(int i) { return kBook.integers[kLevels + i]; }
};

// The midpoints between levels, times the step of each lane.
template <class Book>
struct Thresholds {
  Lanes of[Book::kLevels - 1];
  explicit Thresholds(Lanes step) {
#pragma GCC unroll 8
    for (int i = 0; i < Book::kLevels - 1; ++i) {
      of[i] = mul(set(0.5f * (Book::level(i) + Book::level(i + 1))), step);
    }
  }
};

// How well the codes of one step fit the vectors.
struct Fit {
  Lanes step, product, square;  // the sums of vector * code and of code * code
  Lanes gain;                   // product^2 / square, which grows with the cosine
};

template <class Book>
inline Fit fit_step(const float* x, int64_t n, Lanes step) {
  const Thresholds<Book> thresholds(step);
  Fit fit = {step, zero(), zero(), zero()};
  for (int64_t i = 0; i < n; ++i) {
    const Lanes size = magnitude(load(x + i * kLane));
    Lanes level = set(Book::level(0));
#pragma GCC unroll 8
    for (int t = 0; t < Book::kLevels - 1; ++t) {
      level = select_less(thresholds.of[t], size, set(Book::level(t + 1)), level);
    }
    fit.product = add(fit.product, mul(size, level));
    fit.square = fma(level, level, fit.square);  // exact: integers below 2^24
  }
  fit.gain = mul(div(fit.product, fit.square), fit.product);
  return fit;
}

template <class Book>
void encode_in_codebook(const float* x, int64_t n, bool keys, uint8_t* codes, uint16_t* scales) {
  Lanes norm = zero();  // squared
  for (int64_t i = 0; i < n; ++i) {
    const Lanes value = load(x + i * kLane);
    norm = add(norm, mul(value, value));
  }
  const Lanes mean = div(norm, set(static_cast<float>(n)));
  const Lanes unit = div(square_root(mean), set(Book::kDeviation));
  Fit best = fit_step<Book>(x, n, mul(unit, set(kTurboFactors[0])));
  for (int f = 1; f < kTurboFactorCount; ++f) {
    const Fit fit = fit_step<Book>(x, n, mul(unit, set(kTurboFactors[f])));
    best.step = select_less(best.gain, fit.gain, fit.step, best.step);
    best.product = select_less(best.gain, fit.gain, fit.product, best.product);
    best.square = select_less(best.gain, fit.gain, fit.square, best.square);
    best.gain = select_less(best.gain, fit.gain, fit.gain, best.gain);
  }

  Lanes scale = keys ? div(norm, best.product) : div(best.product, best.square);
  scale = select_less(zero(), norm, scale, zero());
  store_f16(scales, select_less(norm, set(kInfinity), scale, set(__builtin_nanf(""))));
  const Thresholds<Book> thresholds(best.step);
  for (int64_t i = 0; i < n; ++i) {
    const Lanes value = load(x + i * kLane);
    const Lanes size = magnitude(value);
    Lanes level = zero();
#pragma GCC unroll 8
    for (int t = 0; t < Book::kLevels - 1; ++t) {
      level = select_less(thresholds.of[t], size, set(static_cast<float>(t + 1)), level);
    }
    const Lanes code = select_less(value, zero(), sub(set(Book::kLevels - 1.0f), level),
                                   add(set(Book::kLevels), level));
    store_low_bytes(codes + i * kLane, round_to_words(code));
  }
}

void encode(KvCodec codec, const float* x, int64_t n, bool keys, uint8_t* codes,
            uint16_t* scales) {
  with_codec(codec, [&](auto constant) {
    constexpr KvCodec kCodec = constant();
    if constexpr (codec_info(kCodec).book.integers != nullptr) {
      encode_in_codebook<CodecBook<kCodec>>(x, n, keys, codes, scales);
    } else if constexpr (kCodec == KvCodec::int8) {
      encode_int8(x, n, codes, scales);
    } else if constexpr (kCodec == KvCodec::q4_0) {
      encode_q4_0(x, n, codes, scales);
    } else {
      static_assert(kCodec == KvCodec::exact, "a codec without an encoder");
    }
  });
}
