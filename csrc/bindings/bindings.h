// The parts of the extension module. Each file binds one of them.
#pragma once

#include <pybind11/numpy.h>

#include "engine/request.h"

void bind_device(pybind11::module_& m);
void bind_model(pybind11::module_& m);
void bind_requests(pybind11::module_& m);
void bind_events(pybind11::module_& m);
void bind_engine(pybind11::module_& m);
void bind_observing(pybind11::module_& m);
void bind_kernels(pybind11::module_& m);

// The caller holds the GIL.
pybind11::object to_python(const onward::Event& event);
