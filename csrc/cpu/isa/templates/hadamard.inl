// The rotation of coded vectors (`hadamard` in cpu/kernels.h). Included inside the anonymous
// namespace of a file. Its lanes.inl defines butterfly<stride>(a) for strides 1 to 8: lane i
// becomes a[i] + a[i + stride] where that bit of i is 0, else a[i - stride] - a[i].

constexpr int64_t kMostRotated = 512;

struct RotationSigns {
  float of[kMostRotated];
};
constexpr RotationSigns rotation_signs() {
  RotationSigns signs = {};
  for (int i = 0; i < kMostRotated; ++i) {
    signs.of[i] = (kRotationSigns[i / 32] >> (i % 32) & 1) != 0 ? -1.0f : 1.0f;
  }
  return signs;
}
alignas(64) constexpr RotationSigns kSigns = rotation_signs();

// The largest power of two that is not above n.
inline int64_t rotated_together(int64_t n) {
  return int64_t{1} << (63 - __builtin_clzll(static_cast<unsigned long long>(n)));
}

// 1 / sqrt(size) for a power of two, rounded once.
inline float inverse_root(int64_t size) {
  float root = 1.0f;
  for (; size >= 4; size /= 4) root *= 0.5f;
  return size == 2 ? root * 0.707106781f : root;
}

// The strides of `stride` and 2 * `stride` Lanes in one pass over memory, or only the first of
// them. size: of the block, in Lanes.
inline void butterflies(float* x, int64_t size, int64_t stride, bool both) {
  const int64_t step = stride * kLane, reach = both ? 4 * stride : 2 * stride;
  for (int64_t begin = 0; begin < size; begin += reach) {
    float* p = x + begin * kLane;
    for (int64_t i = 0; i < stride; ++i, p += kLane) {
      const Lanes a = load(p), b = load(p + step);
      const Lanes ab_sum = add(a, b), ab_difference = sub(a, b);
      if (!both) {
        store(p, ab_sum);
        store(p + step, ab_difference);
        continue;
      }
      const Lanes c = load(p + 2 * step), d = load(p + 3 * step);
      const Lanes cd_sum = add(c, d), cd_difference = sub(c, d);
      store(p, add(ab_sum, cd_sum));
      store(p + step, add(ab_difference, cd_difference));
      store(p + 2 * step, sub(ab_sum, cd_sum));
      store(p + 3 * step, sub(ab_difference, cd_difference));
    }
  }
}

// All strides from one Lanes on, ascending. size: of the block, in Lanes.
inline void butterflies(float* x, int64_t size) {
  int64_t stride = 1;
  for (; 2 * stride < size; stride *= 4) butterflies(x, size, stride, true);
  if (stride < size) butterflies(x, size, stride, false);
}

template <bool kInverse>
void rotate_vector(float* x, int64_t n) {
  const float* signs = kSigns.of;
  for (int64_t left = n; left > 0;) {
    const int64_t size = rotated_together(left);
    for (int64_t i = 0; i < size; i += kLane) {
      Lanes a = load(x + i);
      if constexpr (!kInverse) a = mul(a, load(signs + i));
      store(x + i, butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(a)))));
    }
    butterflies(x, size / kLane);
    const Lanes root = set(inverse_root(size));
    for (int64_t i = 0; i < size; i += kLane) {
      Lanes a = mul(load(x + i), root);
      if constexpr (kInverse) a = mul(a, load(signs + i));
      store(x + i, a);
    }
    x += size;
    signs += size;
    left -= size;
  }
}

inline void hadamard(float* x, int64_t n) { rotate_vector<false>(x, n); }
inline void inverse_hadamard(float* x, int64_t n) { rotate_vector<true>(x, n); }

// For sixteen vectors that are lanes, no stride is within a register.
inline void hadamard_lanes(float* x, int64_t n) {
  const float* signs = kSigns.of;
  for (int64_t left = n; left > 0;) {
    const int64_t size = rotated_together(left);
    for (int64_t i = 0; i < size; ++i) {
      store(x + i * kLane, mul(load(x + i * kLane), broadcast(signs + i)));
    }
    butterflies(x, size);
    const Lanes root = set(inverse_root(size));
    for (int64_t i = 0; i < size; ++i) store(x + i * kLane, mul(load(x + i * kLane), root));
    x += size * kLane;
    signs += size;
    left -= size;
  }
}
