// Rotation of keys and values in plain loops: the reference for templates/hadamard.inl. Included
// inside the anonymous namespace of a file.

inline float rotation_sign(int64_t i) {
  return (kRotationSigns[i / 32] >> (i % 32) & 1) != 0 ? -1.0f : 1.0f;
}

// Coordinate i of a vector is x[i * stride].
template <bool kInverse>
void rotate_vector(float* x, int64_t n, int64_t stride) {
  if (!kInverse) {
    for (int64_t i = 0; i < n; ++i) x[i * stride] *= rotation_sign(i);
  }
  int64_t begin = 0;
  for (int64_t size = 512; size >= 1; size /= 2) {
    if (begin + size > n) continue;
    for (int64_t step = 1; step < size; step *= 2) {
      for (int64_t i = begin; i < begin + size; ++i) {
        if (((i - begin) & step) != 0) continue;
        const float a = x[i * stride], b = x[(i + step) * stride];
        x[i * stride] = a + b;
        x[(i + step) * stride] = a - b;
      }
    }
    const float root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
    for (int64_t i = begin; i < begin + size; ++i) x[i * stride] *= root;
    begin += size;
  }
  if (kInverse) {
    for (int64_t i = 0; i < n; ++i) x[i * stride] *= rotation_sign(i);
  }
}

inline void hadamard(float* x, int64_t n) { rotate_vector<false>(x, n, 1); }
inline void inverse_hadamard(float* x, int64_t n) { rotate_vector<true>(x, n, 1); }
inline void hadamard_lanes(float* x, int64_t n) {
  for (int64_t lane = 0; lane < kLane; ++lane) rotate_vector<false>(x + lane, n, kLane);
}
