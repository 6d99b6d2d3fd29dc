// The C++ interface of onward: C++17 and header-only. It uses the C interface in onward_c.h, so no
// C++ type crosses the boundary of libonward.so, and you may use any compiler.
//
//   onward::Model model("llama.pack");
//   onward::Engine engine(model);
//   const std::int64_t id = engine.submit(onward::Request(ids).max_new_tokens(64));
//   engine.run([](const onward::Event& event) { if (event.has_token()) print(event.token); });
//
// Errors are exceptions (error.h). `onward doctor --docs native` explains how to find the library
// from CMake or pkg-config, and has more examples.
#pragma once

#include "onward/engine.h"
#include "onward/error.h"
#include "onward/event.h"
#include "onward/model.h"
#include "onward/onward_c.h"
#include "onward/request.h"
#include "onward/span.h"

namespace onward {
inline namespace v1 {

// The version of the linked library, such as "0.1.0".
inline const char* version() noexcept { return onward_version(); }

}  // namespace v1
}  // namespace onward
