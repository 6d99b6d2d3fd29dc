// The bf16 kernels of an instruction set, and their part of the table. Included inside the
// anonymous namespace of a file, after float_products.inl and a Bf16Format (chains.inl).

inline void linear_bf16(const LinearArgs& a) {
  const FlushDenormals flush;
  linear<Bf16Format>(a);
}

constexpr Bf16Kernels kBf16Kernels = {.linear_bf16 = linear_bf16,
                                      .probe_bf16 = probe_multiply_add<Bf16Format>};
