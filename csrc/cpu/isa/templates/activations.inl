// Activations, and the curves that they need. Included inside the anonymous namespace of a file,
// after exponential.inl. generic/activations.inl has the same operations for one value.

inline Lanes smaller(Lanes a, Lanes b) { return select_less(b, a, b, a); }  // a where either is NaN

// The distribution function of the normal distribution, (1 + erf(x / sqrt(2))) / 2, with an
// absolute error below 3e-7. Polynomials: erf(u) / u in u^2 near 0, else log(erfc(u)) in u.
inline Lanes normal_distribution(Lanes x) {
  const Lanes u = mul(x, set(0.707106781f)), size = magnitude(u), square = mul(u, u);
  const Lanes half = set(0.5f);
  Lanes p = set(-0x1.370058p-11f);
  p = fma(p, square, set(0x1.4682a6p-8f));
  p = fma(p, square, set(-0x1.b66dd8p-6f));
  p = fma(p, square, set(0x1.ce1892p-4f));
  p = fma(p, square, set(-0x1.8126dcp-2f));
  p = fma(p, square, set(0x1.20dd74p+0f));
  const Lanes near = fma(mul(u, p), half, half);
  Lanes q = set(0x1.9873eep-20f);
  q = fma(q, size, set(-0x1.6f325ep-15f));
  q = fma(q, size, set(0x1.2ecef6p-11f));
  q = fma(q, size, set(-0x1.320710p-8f));
  q = fma(q, size, set(0x1.acb50ap-6f));
  q = fma(q, size, set(-0x1.c10e8ap-4f));
  q = fma(q, size, set(-0x1.43bcb6p-1f));
  q = fma(q, size, set(-0x1.2144eap+0f));
  q = fma(q, size, set(0x1.08ba14p-12f));
  const Lanes tail = select_less(set(4.2f), size, zero(), mul(exponential(q), half));
  const Lanes far = select_less(u, zero(), tail, sub(set(1.0f), tail));
  return select_less(set(0.94f), size, far, near);
}

inline Lanes sigmoid_product(Lanes x, Lanes scaled) {
  return div(x, add(set(1.0f), exponential(sub(zero(), scaled))));
}

// Calls body(function) with the function of an activation, so that no loop has a branch on it.
template <class Body>
inline void with_activation(const ActivateArgs& a, const Body& body) {
  switch (a.gate.activation) {
    case Activation::silu:
      return body([](Lanes x) { return sigmoid_product(x, x); });
    case Activation::gelu:
      return body([](Lanes x) { return mul(x, normal_distribution(x)); });
    case Activation::gelu_tanh:
      return body([](Lanes x) {
        return sigmoid_product(x, mul(x, fma(mul(x, x), set(0.0713548163f), set(1.59576912f))));
      });
    case Activation::quick_gelu:
      return body([](Lanes x) { return sigmoid_product(x, mul(x, set(1.702f))); });
    case Activation::relu:
      return body([](Lanes x) { return select_less(x, zero(), zero(), x); });
    case Activation::relu2:
      return body([](Lanes x) {
        const Lanes positive = select_less(x, zero(), zero(), x);
        return mul(positive, positive);
      });
    case Activation::sigmoid:
      return body([](Lanes x) { return sigmoid_product(set(1.0f), x); });
    case Activation::xielu: {
      const Lanes alpha_p = set(a.parameters[0]), alpha_n = set(a.parameters[1]);
      const Lanes beta = set(a.parameters[2]), eps = set(a.parameters[3]);
      return body([=](Lanes x) {
        const Lanes line = mul(beta, x);
        const Lanes positive = fma(mul(alpha_p, x), x, line);
        const Lanes curve = sub(sub(exponential(smaller(x, eps)), set(1.0f)), x);
        return select_less(zero(), x, positive, fma(curve, alpha_n, line));
      });
    }
  }
}

void activate(const ActivateArgs& a) {
  with_activation(a, [&](const auto& act) {
    if (!a.gate.gated) {
      for (int64_t i = 0; i < a.n; i += kLane) store(a.y + i, act(load(a.x + i)));
    } else if (a.gate.limit == 0 && a.gate.up_shift == 0) {
      for (int64_t i = 0; i < a.n; i += kLane) {
        store(a.y + i, mul(act(load(a.x + i)), load(a.up + i)));
      }
    } else {
      const Lanes limit = set(a.gate.limit > 0 ? a.gate.limit : kInfinity);
      const Lanes least = sub(zero(), limit), shift = set(a.gate.up_shift);
      for (int64_t i = 0; i < a.n; i += kLane) {
        const Lanes up = smaller(load(a.up + i), limit);
        const Lanes clamped = select_less(up, least, least, up);
        store(a.y + i, mul(act(smaller(load(a.x + i), limit)), add(clamped, shift)));
      }
    }
  });
}
