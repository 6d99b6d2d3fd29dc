// Coding of keys and values in plain loops: the reference for templates/encode.inl. Included inside
// the anonymous namespace of a file, after numbers.inl.

template <class Element>
void widen(const uint16_t* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = as_float(Element{x[i]});
}

inline bool finite_vector(const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i * kLane])) return false;
  }
  return true;
}

inline void encode_int8(const float* x, int64_t n, uint8_t* codes, uint16_t* scales) {
  for (int64_t token = 0; token < kLane; ++token) {
    const float* vector = x + token;
    const bool finite = finite_vector(vector, n);
    float largest = 0.0f;
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(vector[i * kLane]));
    scales[token] = float_to_f16(finite ? largest / 127.0f : NAN);
    const float scale = f16_to_float(scales[token]);
    for (int64_t i = 0; i < n; ++i) {
      const float scaled = finite && scale > 0.0f ? vector[i * kLane] / scale : 0.0f;
      const float integer = std::nearbyint(std::clamp(scaled, -127.0f, 127.0f));
      codes[i * kLane + token] = static_cast<uint8_t>(128 + static_cast<int>(integer));
    }
  }
}

// One token's group of 32: (32, 16), its codes and its scale.
inline void encode_q4_0_group(const float* x, uint8_t* codes, uint16_t& stored) {
  const bool finite = finite_vector(x, kGroupValues);
  float extreme = 0.0f;
  for (int64_t i = 0; i < kGroupValues; ++i) {
    if (std::fabs(extreme) < std::fabs(x[i * kLane])) extreme = x[i * kLane];
  }
  const float scale = std::fabs(extreme) < 0x1p-120f ? 0.0f : extreme / -8.0f;
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  stored = float_to_f16(finite ? scale : NAN);
  for (int64_t i = 0; i < kGroupValues; ++i) {
    const float shifted = finite ? x[i * kLane] * inverse + 8.5f : 8.5f;
    codes[i * kLane] = static_cast<uint8_t>(std::min(15.0f, shifted));
  }
}

inline void encode_q4_0(const float* x, int64_t n, uint8_t* codes, uint16_t* scales) {
  for (int64_t group = 0; group < n / kGroupValues; ++group) {
    for (int64_t token = 0; token < kLane; ++token) {
      const int64_t begin = group * kGroupValues * kLane + token;
      encode_q4_0_group(x + begin, codes + begin, scales[group * kLane + token]);
    }
  }
}

// Codes of one vector, (n, 16), and how well they fit.
struct BookCodes {
  uint8_t codes[512];
  float product;  // of vector and integers
  float gain;     // product^2 / square: grows with the cosine
  float square;   // of the integers
};

BookCodes book_codes(const int8_t* integers, int count, const float* x, int64_t n, float step) {
  BookCodes found;
  found.product = 0.0f;
  int64_t square = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float size = std::fabs(x[i * kLane]);
    int code = count / 2;
    while (code < count - 1) {
      const float midpoint = 0.5f * static_cast<float>(integers[code] + integers[code + 1]);
      if (!(midpoint * step < size)) break;
      ++code;
    }
    found.product += size * static_cast<float>(integers[code]);
    square += integers[code] * integers[code];
    found.codes[i] = static_cast<uint8_t>(x[i * kLane] < 0.0f ? count - 1 - code : code);
  }
  found.square = static_cast<float>(square);
  found.gain = (found.product / found.square) * found.product;
  return found;
}

inline void encode_in_codebook(const KvCodecInfo& info, const float* x, int64_t n, bool keys,
                        uint8_t* codes, uint16_t* scales) {
  const int8_t* integers = info.book.integers;
  const int count = 1 << info.bits;
  for (int64_t token = 0; token < kLane; ++token) {
    const float* vector = x + token;
    float norm = 0.0f;  // squared
    for (int64_t i = 0; i < n; ++i) norm += vector[i * kLane] * vector[i * kLane];
    const float unit = std::sqrt(norm / static_cast<float>(n)) / info.book.deviation;
    BookCodes best = book_codes(integers, count, vector, n, unit * kTurboFactors[0]);
    for (int f = 1; f < kTurboFactorCount; ++f) {
      const BookCodes other = book_codes(integers, count, vector, n, unit * kTurboFactors[f]);
      if (best.gain < other.gain) best = other;
    }
    for (int64_t i = 0; i < n; ++i) codes[i * kLane + token] = best.codes[i];
    const float scale = keys ? norm / best.product : best.product / best.square;
    scales[token] = float_to_f16(!std::isfinite(norm) ? NAN : norm > 0.0f ? scale : 0.0f);
  }
}

inline void encode(KvCodec codec, const float* x, int64_t n, bool keys, uint8_t* codes,
            uint16_t* scales) {
  if (codec_info(codec).book.integers != nullptr) {
    encode_in_codebook(codec_info(codec), x, n, keys, codes, scales);
  } else if (codec == KvCodec::int8) {
    encode_int8(x, n, codes, scales);
  } else if (codec == KvCodec::q4_0) {
    encode_q4_0(x, n, codes, scales);
  }
}
