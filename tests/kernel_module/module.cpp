// The extension module onward_kernels: the core's inner loops on numpy arrays, for the tests and
// the benchmarks. It calls the libonward of the installed package and is no part of that package.
#include "module.h"

#include "bindings/error_translation.h"

namespace py = pybind11;

PYBIND11_MODULE(onward_kernels, m) {
  m.doc() = "Inner loops of onward's core on numpy arrays, for tests and benchmarks.";
  py::module_::import("onward._core");  // its SamplingOptions are arguments here
  py::register_local_exception_translator(translate_errors);
  bind_attend_layer(m);
  bind_attend_rate(m);
  bind_codes(m);
  bind_linear(m);
  bind_rotate(m);
  bind_rows(m);
  bind_sampling(m);
  bind_scans(m);
  bind_verbs(m);
}
