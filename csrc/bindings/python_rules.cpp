// Calls from the engine into Python, on the thread that runs a step. They hold the interpreter lock
// during the call only. An exception of a callable ends its request.
#include "bindings/python_rules.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace py = pybind11;

namespace onward {
namespace {

// A Python object that is released with the interpreter lock, on whichever thread that happens.
class Held {
 public:
  explicit Held(py::object object) : object_(std::move(object)) {}
  ~Held() {
    py::gil_scoped_acquire acquire;
    object_ = py::object();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  py::object& operator*() { return object_; }

 private:
  py::object object_;
};

py::array_t<int32_t> to_array(const std::vector<int32_t>& tokens) {
  return py::array_t<int32_t>(static_cast<py::ssize_t>(tokens.size()), tokens.data());
}

class PythonScoreRule final : public ScoreRule {
 public:
  explicit PythonScoreRule(py::object rule) : rule_(std::move(rule)), scores_(py::none()) {}

  void change(const std::vector<int32_t>& tokens, float* scores, int64_t vocab_size) override {
    using Floats = py::array_t<float, py::array::c_style>;
    py::gil_scoped_acquire acquire;
    // The array owns its memory, so a callable may keep it: it keeps its values, and the next call
    // gets a new array.
    if ((*scores_).is_none() || Py_REFCNT((*scores_).ptr()) > 1) *scores_ = Floats(vocab_size);
    auto view = py::reinterpret_borrow<Floats>(*scores_);
    const size_t bytes = static_cast<size_t>(vocab_size) * sizeof(float);
    std::memcpy(view.mutable_data(), scores, bytes);
    (*rule_)(to_array(tokens), view);
    if (view.ndim() != 1 || view.size() != vocab_size) {
      throw InvalidArgument("logits_processor: changed the shape of the scores, expected (" +
                            std::to_string(vocab_size) + ",)");
    }
    std::memcpy(scores, view.data(), bytes);
  }

 private:
  Held rule_;
  Held scores_;
};

class PythonEndRule final : public EndRule {
 public:
  explicit PythonEndRule(py::object rule) : rule_(std::move(rule)) {}

  bool ends(const std::vector<int32_t>& tokens) override {
    py::gil_scoped_acquire acquire;
    const py::object result = (*rule_)(to_array(tokens));
    const int truth = PyObject_IsTrue(result.ptr());
    if (truth < 0) throw py::error_already_set();
    return truth != 0;
  }

 private:
  Held rule_;
};

}  // namespace

std::shared_ptr<ScoreRule> score_rule(py::object rule) {
  return rule.is_none() ? nullptr : std::make_shared<PythonScoreRule>(std::move(rule));
}

std::shared_ptr<EndRule> end_rule(py::object rule) {
  return std::make_shared<PythonEndRule>(std::move(rule));
}

}  // namespace onward
