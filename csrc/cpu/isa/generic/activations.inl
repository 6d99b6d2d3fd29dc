// Activations, and the curves that they need, value by value: the reference for
// templates/activations.inl. Included inside the anonymous namespace of a file, after numbers.inl.

inline float smaller(float a, float b) { return b < a ? b : a; }  // a where either is NaN

inline float normal_distribution(float x) {
  const float u = x * 0.707106781f, size = std::fabs(u), square = u * u;
  if (!(0.94f < size)) {
    float p = -0x1.370058p-11f;
    p = fused(p, square, 0x1.4682a6p-8f);
    p = fused(p, square, -0x1.b66dd8p-6f);
    p = fused(p, square, 0x1.ce1892p-4f);
    p = fused(p, square, -0x1.8126dcp-2f);
    p = fused(p, square, 0x1.20dd74p+0f);
    return fused(u * p, 0.5f, 0.5f);
  }
  float q = 0x1.9873eep-20f;
  q = fused(q, size, -0x1.6f325ep-15f);
  q = fused(q, size, 0x1.2ecef6p-11f);
  q = fused(q, size, -0x1.320710p-8f);
  q = fused(q, size, 0x1.acb50ap-6f);
  q = fused(q, size, -0x1.c10e8ap-4f);
  q = fused(q, size, -0x1.43bcb6p-1f);
  q = fused(q, size, -0x1.2144eap+0f);
  q = fused(q, size, 0x1.08ba14p-12f);
  const float tail = 4.2f < size ? 0.0f : exponential(q) * 0.5f;
  return u < 0.0f ? tail : 1.0f - tail;
}

inline float sigmoid_product(float x, float scaled) {
  return x / (1.0f + exponential(0.0f - scaled));
}

inline float activated(const ActivateArgs& a, float x) {
  const float positive = x < 0.0f ? 0.0f : x;
  switch (a.gate.activation) {
    case Activation::silu:
      return sigmoid_product(x, x);
    case Activation::gelu:
      return x * normal_distribution(x);
    case Activation::gelu_tanh:
      return sigmoid_product(x, x * fused(x * x, 0.0713548163f, 1.59576912f));
    case Activation::quick_gelu:
      return sigmoid_product(x, x * 1.702f);
    case Activation::relu:
      return positive;
    case Activation::relu2:
      return positive * positive;
    case Activation::sigmoid:
      return sigmoid_product(1.0f, x);
    case Activation::xielu: {
      const float* p = a.parameters;  // alpha_p, alpha_n, beta, eps
      const float line = p[2] * x;
      if (0.0f < x) return fused(p[0] * x, x, line);
      return fused(exponential(smaller(x, p[3])) - 1.0f - x, p[1], line);
    }
  }
  return x;
}

void activate(const ActivateArgs& a) {
  const float limit = a.gate.limit > 0 ? a.gate.limit : INFINITY;
  for (int64_t i = 0; i < a.n; ++i) {
    if (!a.gate.gated) {
      a.y[i] = activated(a, a.x[i]);
    } else if (a.gate.limit == 0 && a.gate.up_shift == 0) {
      a.y[i] = activated(a, a.x[i]) * a.up[i];
    } else {
      const float up = smaller(a.up[i], limit);
      const float clamped = up < 0.0f - limit ? 0.0f - limit : up;
      a.y[i] = activated(a, smaller(a.x[i], limit)) * (clamped + a.gate.up_shift);
    }
  }
}

void soft_cap(float* x, int64_t n, float scale, float cap) {
  for (int64_t i = 0; i < n; ++i) x[i] = soft_capped(x[i] * scale, cap);
}
