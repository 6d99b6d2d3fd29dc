// The scans of a row of logits, and the steps of sampling that use them.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "backend/row_scans.h"
#include "base/error.h"
#include "module.h"
#include "sampling/filters.h"
#include "sampling/log_probability.h"
#include "sampling/sampler.h"

namespace py = pybind11;

namespace {

using namespace onward;

using Steps = std::vector<std::pair<std::string, double>>;

const RowScans& scans_of(const std::string& isa) { return kernels_of(isa).scans; }

bool all_finite(const std::string& isa, const Floats& x) {
  return scans_of(isa).all_finite(x.data(), x.size());
}

float largest(const std::string& isa, const Floats& x) {
  return scans_of(isa).largest(x.data(), x.size());
}

std::pair<Floats, float> rescale(const std::string& isa, const Floats& x, double shift,
                                 double factor) {
  Floats y(x.size());
  const float smallest = scans_of(isa).rescale(x.data(), shift, factor, x.size(), y.mutable_data());
  return {y, smallest};
}

std::pair<Floats, double> exponentials(const std::string& isa, const Floats& x) {
  Floats y(x.size());
  const double sum = scans_of(isa).exponentials(x.data(), x.size(), y.mutable_data());
  return {y, sum};
}

double dot(const std::string& isa, const Floats& a, const Floats& b) {
  expect_shape("b", b, {a.size()});
  return scans_of(isa).dot(a.data(), b.data(), a.size());
}

double sum_at_least(const std::string& isa, const Floats& key, const Floats& value, float least) {
  expect_shape("value", value, {key.size()});
  return scans_of(isa).sum_at_least(key.data(), value.data(), least, key.size());
}

std::pair<Floats, IdArray> gather_range(const std::string& isa, const Floats& key, float low,
                                    float high, const Floats& value, const std::optional<IdArray>& id) {
  const RowScans& scans = scans_of(isa);
  expect_shape("value", value, {key.size()});
  if (id) expect_shape("id", *id, {key.size()});
  const int64_t n = key.size();
  std::vector<float> values(static_cast<size_t>(n + RowScans::kGatherRoom));
  std::vector<int32_t> ids(values.size());
  const int64_t kept = scans.gather_range(key.data(), low, high, value.data(),
                                          id ? id->data() : nullptr, n, values.data(), ids.data());
  // The same again, in place.
  std::vector<float> own_values(value.data(), value.data() + n);
  own_values.resize(values.size());
  std::vector<int32_t> own_ids(ids.size());
  if (id) std::copy_n(id->data(), n, own_ids.begin());
  const int64_t again =
      scans.gather_range(key.data(), low, high, own_values.data(), id ? own_ids.data() : nullptr, n,
                         own_values.data(), own_ids.data());
  const size_t bytes = static_cast<size_t>(kept) * 4;
  if (again != kept || std::memcmp(values.data(), own_values.data(), bytes) != 0 ||
      std::memcmp(ids.data(), own_ids.data(), bytes) != 0) {
    throw Error("kernels: gather_range gives something else in place");
  }
  return {Floats(kept, values.data()), IdArray(kept, ids.data())};
}

std::pair<IdArray, Floats> arrays(const std::vector<ScoredToken>& tokens) {
  IdArray ids(static_cast<py::ssize_t>(tokens.size()));
  Floats scores(ids.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    ids.mutable_data()[i] = tokens[i].id;
    scores.mutable_data()[i] = tokens[i].score;
  }
  return {ids, scores};
}

Floats log_softmax_of(const Floats& scores) {
  Floats result(scores.size(), scores.data());
  log_softmax(result.mutable_data(), result.size());
  return result;
}

using Step = std::function<void(Candidates&, double)>;

const std::map<std::string, Step>& chain_steps() {
  static const std::map<std::string, Step> steps = {
      {"temperature", scale},
      {"top_n_sigma", keep_top_n_sigma},
      {"top_k", [](Candidates& c, double k) { keep_top_k(c, static_cast<int64_t>(k)); }},
      {"top_p", keep_top_p},
      {"min_p", keep_min_p},
      {"typical_p", keep_typical},
      {"epsilon_cutoff", keep_probable},
      {"eta_cutoff", keep_eta},
      {"xtc_threshold", drop_top_choices},
  };
  return steps;
}

Candidates filtered(const Floats& scores, const Steps& steps) {
  const int64_t best = first_largest(scores.data(), scores.size());
  if (best < 0) throw InvalidArgument("kernels: expected a score above -infinity");
  Candidates candidates;
  candidates.begin(scores.data(), scores.size(), scores.data()[best]);
  for (const auto& [name, value] : steps) {
    const auto step = chain_steps().find(name);
    if (step == chain_steps().end()) throw InvalidArgument("kernels: unknown filter " + name);
    step->second(candidates, value);
  }
  return candidates;
}

std::pair<IdArray, Floats> filter(const Floats& scores, const Steps& steps) {
  const Candidates candidates = filtered(scores, steps);
  std::vector<ScoredToken> tokens;
  for (int64_t i = 0; i < candidates.size(); ++i) {
    const int32_t id = candidates.id(i);
    tokens.push_back({id, static_cast<float>(log_probability_of(candidates, id))});
  }
  return arrays(tokens);
}

std::pair<IdArray, Floats> best_filtered(const Floats& scores, const Steps& steps, int64_t k) {
  return arrays(best_candidates(filtered(scores, steps), k));
}

std::vector<int32_t> draws(const Floats& scores, const Steps& steps,
                           const std::vector<double>& uniforms) {
  const Candidates candidates = filtered(scores, steps);
  std::vector<int32_t> tokens;
  for (const double uniform : uniforms) tokens.push_back(draw(candidates, uniform));
  return tokens;
}

// Seconds of each step of a sampler. Step i samples from row i modulo the number of rows: the rows
// must differ, because a processor learns the branches of a row that it sees again. The time to
// copy a row is not counted.
std::vector<double> sampler_seconds(const Floats& logits, const SamplingOptions& options,
                                    const std::vector<int32_t>& prompt, int64_t steps) {
  if (logits.ndim() != 2 || logits.size() == 0) {
    throw InvalidArgument("kernels: logits have " + std::to_string(logits.ndim()) +
                          " dimensions, expected 2, none of them 0");
  }
  const int64_t rows = logits.shape(0), vocab_size = logits.shape(1);
  const py::gil_scoped_release release;
  Sampler sampler(std::make_shared<const SamplingOptions>(options), vocab_size, prompt);
  std::vector<int32_t> tokens = prompt;
  std::vector<float> row(static_cast<size_t>(vocab_size));
  std::vector<double> seconds;
  for (int64_t step = 0; step < steps; ++step) {
    std::copy_n(logits.data() + step % rows * vocab_size, vocab_size, row.begin());
    const auto begin = std::chrono::steady_clock::now();
    tokens.push_back(sampler.sample(row.data(), tokens).token);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    seconds.push_back(elapsed.count());
  }
  return seconds;
}

}  // namespace

void bind_scans(py::module_& m) {
  m.def("all_finite", &all_finite, py::arg("isa"), py::arg("x"));
  m.def("largest", &largest, py::arg("isa"), py::arg("x"));
  m.def("rescale", &rescale, py::arg("isa"), py::arg("x"), py::arg("shift"), py::arg("factor"),
        "(x - shift) * factor, and the smallest of these values.");
  m.def("exponentials", &exponentials, py::arg("isa"), py::arg("x"), "exp(x), and the sum.");
  m.def("dot", &dot, py::arg("isa"), py::arg("a"), py::arg("b"));
  m.def("sum_at_least", &sum_at_least, py::arg("isa"), py::arg("key"), py::arg("value"),
        py::arg("least"));
  m.def("gather_range", &gather_range, py::arg("isa"), py::arg("key"), py::arg("low"),
        py::arg("high"), py::arg("value"), py::arg("id") = py::none(),
        "value and id where low <= key < high.");

  m.def(
      "first_largest", [](const Floats& x) { return first_largest(x.data(), x.size()); },
      py::arg("scores"));
  m.def(
      "best_tokens",
      [](const Floats& x, int64_t k) { return arrays(best_tokens(x.data(), x.size(), k)); },
      py::arg("scores"), py::arg("k"), "IdArray and scores, best first.");
  m.def(
      "log_sum_exp", [](const Floats& x) { return log_sum_exp(x.data(), x.size()); },
      py::arg("scores"));
  m.def("log_softmax", &log_softmax_of, py::arg("scores"));
  m.def("filter", &filter, py::arg("scores"), py::arg("steps"),
        "IdArray and log-probabilities of the tokens that remain after the (name, value) steps.");
  m.def("best_filtered", &best_filtered, py::arg("scores"), py::arg("steps"), py::arg("k"),
        "The k most likely tokens that `filter` returns.");
  m.def("draws", &draws, py::arg("scores"), py::arg("steps"), py::arg("uniforms"),
        "The token that each number from 0 to 1 draws from the result of `filter`.");
  m.def("sampler_seconds", &sampler_seconds, py::arg("logits"), py::arg("options"),
        py::arg("prompt"), py::arg("steps"),
        "Seconds of each sampling step over logits (rows, vocab_size).");
}
