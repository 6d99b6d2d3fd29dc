// Raises the core's errors in Python as the classes of the same names in onward.errors.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>

#include "base/error.h"

inline void raise_as(const char* class_name, const char* message) {
  const pybind11::object error_class = pybind11::module_::import("onward.errors").attr(class_name);
  PyErr_SetString(error_class.ptr(), message);
}

// For pybind11::register_local_exception_translator.
inline void translate_errors(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const onward::NotCached& error) {  // before its base class
    raise_as("NotCached", error.what());
  } catch (const onward::InvalidArgument& error) {
    raise_as("InvalidArgument", error.what());
  } catch (const onward::WeightError& error) {
    raise_as("WeightError", error.what());
  } catch (const onward::IoError& error) {
    raise_as("IoError", error.what());
  } catch (const onward::PackError& error) {
    raise_as("PackError", error.what());
  } catch (const onward::NumericsError& error) {
    raise_as("NumericsError", error.what());
  } catch (const onward::DeviceError& error) {
    raise_as("DeviceError", error.what());
  } catch (const onward::Closed& error) {
    raise_as("ClosedError", error.what());
  } catch (const onward::Error& error) {
    raise_as("Error", error.what());
  }
}
