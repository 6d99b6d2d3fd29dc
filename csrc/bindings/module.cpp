// The extension module onward._core: translates between Python and the core.
#include <pybind11/pybind11.h>

#include "base/thread_pool.h"
#include "bindings/bindings.h"
#include "bindings/error_translation.h"
#include "onward/version.h"

namespace py = pybind11;

PYBIND11_MODULE(_core, m) {
  m.doc() = "The C++ core of onward. The public interface is the onward package.";
  m.attr("__version__") = ONWARD_VERSION;
  m.attr("build") = ONWARD_BUILD;
  py::register_local_exception_translator(translate_errors);

  m.def("default_threads", &onward::available_processors,
        "Processors this process may use: affinity, limited by the cgroup quota.");
  bind_cache(m);
  bind_device(m);
  bind_spec(m);
  bind_model(m);
  bind_requests(m);
  bind_events(m);
  bind_client(m);
  bind_engine(m);
  bind_process(m);
  bind_observing(m);
  bind_kernels(m);
}
