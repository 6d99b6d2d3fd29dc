// The extension module onward._core: translation between Python and the core, and nothing else.
#include <pybind11/pybind11.h>

#include "backend/cache_layout.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "bindings/bindings.h"
#include "onward/version.h"

namespace py = pybind11;

namespace {

// Raises the class of the same name from onward.errors.
void raise(const char* class_name, const char* message) {
  const py::object error_class = py::module_::import("onward.errors").attr(class_name);
  PyErr_SetString(error_class.ptr(), message);
}

void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const onward::InvalidArgument& error) {
    raise("InvalidArgument", error.what());
  } catch (const onward::WeightError& error) {
    raise("WeightError", error.what());
  } catch (const onward::IoError& error) {
    raise("IoError", error.what());
  } catch (const onward::PackError& error) {
    raise("PackError", error.what());
  } catch (const onward::NumericsError& error) {
    raise("NumericsError", error.what());
  } catch (const onward::DeviceError& error) {
    raise("DeviceError", error.what());
  } catch (const onward::Error& error) {
    raise("Error", error.what());
  }
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.doc() = "The C++ core of onward. The public interface is the onward package.";
  m.attr("__version__") = ONWARD_VERSION;
  m.attr("build") = ONWARD_BUILD;
  py::register_exception_translator(translate);

  m.def("default_threads", &onward::available_processors,
        "Processors this process may use: affinity, limited by the cgroup quota.");
  m.def("kv_cache_bytes", &onward::kv_cache_bytes, py::arg("num_layers"), py::arg("num_kv_heads"),
        py::arg("head_dim"), py::arg("tokens"), py::arg("bytes_per_value"),
        "Bytes of keys and values: 2 x layers x kv heads x head_dim x tokens x bytes per value.");
  bind_device(m);
  bind_model(m);
  bind_requests(m);
  bind_events(m);
  bind_engine(m);
  bind_observing(m);
  bind_kernels(m);
}
