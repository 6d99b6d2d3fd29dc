// The parts of the extension module, each in a file of its own.
#pragma once

#include <pybind11/pybind11.h>

void bind_model(pybind11::module_& m);
void bind_requests(pybind11::module_& m);
void bind_engine(pybind11::module_& m);
void bind_kernels(pybind11::module_& m);
