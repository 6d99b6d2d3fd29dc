// The parts of this module. Each file binds one of them.
#pragma once

#include <pybind11/pybind11.h>

void bind_attend_layer(pybind11::module_& m);
void bind_attend_rate(pybind11::module_& m);
void bind_codes(pybind11::module_& m);
void bind_linear(pybind11::module_& m);
void bind_rotate(pybind11::module_& m);
void bind_rows(pybind11::module_& m);
void bind_sampling(pybind11::module_& m);
void bind_scans(pybind11::module_& m);
void bind_verbs(pybind11::module_& m);
