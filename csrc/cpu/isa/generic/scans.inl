// Scans of a row of logits in plain loops: the reference for templates/scans.inl. Included inside
// the anonymous namespace of a file, after numbers.inl.

// Element i of a row belongs to lane i % 16 of a sum.
double fold_add(double (&lanes)[kLane]) {
  for (int64_t half = kLane / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

bool all_finite(const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return false;
  }
  return true;
}

float largest(const float* x, int64_t n) {
  float best = -INFINITY;
  for (int64_t i = 0; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best + 0.0f;
}

float rescale(const float* x, double shift, double factor, int64_t n, float* y) {
  float smallest = INFINITY;
  for (int64_t i = 0; i < n; ++i) {
    y[i] = static_cast<float>((static_cast<double>(x[i]) - shift) * factor);
    smallest = y[i] < smallest ? y[i] : smallest;
  }
  return smallest + 0.0f;
}

double exponentials(const float* x, int64_t n, float* y) {
  double sums[kLane] = {};
  for (int64_t i = 0; i < n; ++i) {
    y[i] = exponential(x[i]);
    sums[i % kLane] += static_cast<double>(y[i]);
  }
  return fold_add(sums);
}

double dot(const float* a, const float* b, int64_t n) {
  double sums[kLane] = {};
  for (int64_t i = 0; i < n; ++i) {
    sums[i % kLane] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return fold_add(sums);
}

double sum_at_least(const float* key, const float* value, float least, int64_t n) {
  double sums[kLane] = {};
  for (int64_t i = 0; i < n; ++i) {
    if (key[i] >= least) sums[i % kLane] += static_cast<double>(value[i]);
  }
  return fold_add(sums);
}

int64_t gather_range(const float* key, float low, float high, const float* value, const int32_t* id,
                     int64_t n, float* value_out, int32_t* id_out) {
  int64_t kept = 0;
  for (int64_t i = 0; i < n; ++i) {
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
