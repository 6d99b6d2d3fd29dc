// Scans of a row of logits (backend/row_scans.h). Included inside the anonymous namespace of a
// file, after exponential.inl. Its lanes.inl defines Sums, sixteen doubles.

// The first `count` lanes, the others `filler`.
inline Lanes load_or(const float* p, int64_t count, float filler) {
  float lanes[kLane];
  for (int64_t i = 0; i < kLane; ++i) lanes[i] = i < count ? p[i] : filler;
  return load(lanes);
}

inline double fold(Sums sums) {
  double lanes[kLane];
  store(lanes, sums);
  for (int64_t half = kLane / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

bool all_finite(const float* x, int64_t n) {
  // x - x is 0 for a finite x and NaN otherwise. Four chains hide the latency of additions.
  Lanes witness[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLane <= n; i += 4 * kLane) {
    for (int chain = 0; chain < 4; ++chain) {
      const Lanes value = load(x + i + chain * kLane);
      witness[chain] = add(witness[chain], sub(value, value));
    }
  }
  for (; i < n; i += kLane) {
    const Lanes value = n - i >= kLane ? load(x + i) : load_or(x + i, n - i, 0.0f);
    witness[0] = add(witness[0], sub(value, value));
  }
  return fold_add(add(add(witness[0], witness[1]), add(witness[2], witness[3]))) == 0.0f;
}

float largest(const float* x, int64_t n) {
  const Lanes lowest = set(-kInfinity);
  Lanes best[4] = {lowest, lowest, lowest, lowest};
  int64_t i = 0;
  for (; i + 4 * kLane <= n; i += 4 * kLane) {
    for (int chain = 0; chain < 4; ++chain) {
      best[chain] = max(best[chain], load(x + i + chain * kLane));
    }
  }
  for (; i < n; i += kLane) {
    best[0] = max(best[0], n - i >= kLane ? load(x + i) : load_or(x + i, n - i, -kInfinity));
  }
  return fold_max(max(max(best[0], best[1]), max(best[2], best[3]))) + 0.0f;
}

float rescale(const float* x, double shift, double factor, int64_t n, float* y) {
  Lanes greatest_negated = set(-kInfinity);  // there is a max and no min of lanes
  int64_t i = 0;
  for (; i + kLane <= n; i += kLane) {
    const Lanes value = shift_and_scale(load(x + i), shift, factor);
    store(y + i, value);
    greatest_negated = max(greatest_negated, sub(zero(), value));
  }
  float smallest = -fold_max(greatest_negated);
  for (; i < n; ++i) {
    y[i] = static_cast<float>((static_cast<double>(x[i]) - shift) * factor);
    smallest = y[i] < smallest ? y[i] : smallest;
  }
  return smallest + 0.0f;
}

double exponentials(const float* x, int64_t n, float* y) {
  Sums sums = no_sums();
  int64_t i = 0;
  for (; i + kLane <= n; i += kLane) {
    const Lanes value = exponential_up_to_88(load(x + i));
    store(y + i, value);
    sums = add(sums, value);
  }
  if (i < n) {
    const Lanes value = exponential_up_to_88(load_or(x + i, n - i, -kInfinity));
    store_part(y + i, value, n - i);
    sums = add(sums, value);
  }
  return fold(sums);
}

double dot(const float* a, const float* b, int64_t n) {
  Sums sums = no_sums();
  int64_t i = 0;
  for (; i + kLane <= n; i += kLane) sums = add_product(sums, load(a + i), load(b + i));
  if (i < n) {
    sums = add_product(sums, load_or(a + i, n - i, 0.0f), load_or(b + i, n - i, 0.0f));
  }
  return fold(sums);
}

double sum_at_least(const float* key, const float* value, float least, int64_t n) {
  const Lanes threshold = set(least);
  Sums sums = no_sums();
  int64_t i = 0;
  for (; i + kLane <= n; i += kLane) {
    sums = add(sums, select_less(load(key + i), threshold, zero(), load(value + i)));
  }
  if (i < n) {
    const Lanes part = load_or(value + i, n - i, 0.0f);
    sums = add(sums, select_less(load_or(key + i, n - i, 0.0f), threshold, zero(), part));
  }
  return fold(sums);
}

// Appends the elements of block i that `chosen` marks to the outputs at `kept`; returns the new
// count. Reads both inputs before it writes an output: the outputs may overlap the inputs.
inline int64_t gather_block(unsigned chosen, const float* value, const int32_t* id, int64_t i,
                            int64_t kept, float* value_out, int32_t* id_out) {
  const Lanes values = load(value + i);
  const Lanes ids = id != nullptr ? load(reinterpret_cast<const float*>(id + i))
                                  : count_up(static_cast<int32_t>(i));
  compress(chosen, values, value_out + kept);
  return kept + compress(chosen, ids, reinterpret_cast<float*>(id_out + kept));
}

int64_t gather_range(const float* key, float low, float high, const float* value, const int32_t* id,
                     int64_t n, float* value_out, int32_t* id_out) {
  const Lanes least = set(low), limit = set(high);
  int64_t kept = 0, i = 0;
  // Four blocks at a time, all or none: a branch for each block would often be mispredicted.
  for (; i + 4 * kLane <= n; i += 4 * kLane) {
    unsigned chosen[4];
    for (int b = 0; b < 4; ++b) chosen[b] = mask_in_range(load(key + i + b * kLane), least, limit);
    if ((chosen[0] | chosen[1] | chosen[2] | chosen[3]) == 0) continue;
    for (int b = 0; b < 4; ++b) {
      kept = gather_block(chosen[b], value, id, i + b * kLane, kept, value_out, id_out);
    }
  }
  for (; i + kLane <= n; i += kLane) {
    const unsigned chosen = mask_in_range(load(key + i), least, limit);
    kept = gather_block(chosen, value, id, i, kept, value_out, id_out);
  }
  for (; i < n; ++i) {
    if (!(low <= key[i] && key[i] < high)) continue;
    const int32_t number = id != nullptr ? id[i] : static_cast<int32_t>(i);
    value_out[kept] = value[i];
    id_out[kept++] = number;
  }
  return kept;
}

constexpr RowScans kScans = {.all_finite = all_finite,
                             .largest = largest,
                             .rescale = rescale,
                             .exponentials = exponentials,
                             .dot = dot,
                             .sum_at_least = sum_at_least,
                             .gather_range = gather_range};
