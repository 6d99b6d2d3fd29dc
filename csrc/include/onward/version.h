// The one place that holds the version; pyproject.toml and CMake read it from here.
#pragma once

#define ONWARD_VERSION "0.1.0"
