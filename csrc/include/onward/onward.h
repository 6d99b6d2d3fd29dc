// The C++ interface of onward: C++17, header-only, over the C interface in onward_c.h, so that no
// C++ type crosses the border of libonward.so and any compiler may be on the other side.
//
//   onward::Model model("llama.pack");
//   onward::Engine engine(model);
//   const std::int64_t id = engine.submit(onward::Request(ids).max_new_tokens(64));
//   engine.run([](const onward::Event& event) { if (event.has_token()) print(event.token); });
//
// Errors are exceptions (error.h). How to find the library from CMake or pkg-config, and more
// examples, is written in the document native (onward doctor --docs native).
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

// Of the library that is linked, such as "0.1.0".
inline const char* version() noexcept { return onward_version(); }

}  // namespace v1
}  // namespace onward
