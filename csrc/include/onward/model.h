// Part of onward/onward.h: an open pack. Knows no engine. The fields of options and of ModelInfo
// are those of the C structs in onward_c.h, where each is explained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "onward/error.h"
#include "onward/onward_c.h"

namespace onward {
inline namespace v1 {

struct ModelOptions : onward_model_options {
  ModelOptions() noexcept : onward_model_options() { onward_model_options_init(this); }
};

using ModelInfo = onward_model_info;

// Movable, and closes itself. May be used from several threads. Engines made of it go on without
// it. One that was moved from or closed is a closed one: every call throws Closed.
class Model {
 public:
  explicit Model(const std::string& path, const ModelOptions& options = ModelOptions()) {
    check(onward_model_open(path.c_str(), &options, &handle_));
  }
  // Takes over a handle of the C interface.
  static Model from_handle(onward_model handle) noexcept {
    Model model;
    model.handle_ = handle;
    return model;
  }
  ~Model() { close(); }
  Model(Model&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Model& operator=(Model&& other) noexcept {
    if (this != &other) {
      close();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void close() noexcept {
    if (handle_ != nullptr) onward_model_close(std::exchange(handle_, nullptr));
  }

  ModelInfo info() const {
    ModelInfo info = {};
    info.size = sizeof(info);
    check(onward_model_get_info(handle_, &info));
    return info;
  }

  // The ids that end an output.
  std::vector<std::int32_t> eos_token_ids() const {
    std::size_t count = 0;
    check(onward_model_eos_token_ids(handle_, nullptr, 0, &count));
    std::vector<std::int32_t> ids(count);
    check(onward_model_eos_token_ids(handle_, ids.data(), ids.size(), &count));
    return ids;
  }

  // A text of the pack: "tokenizer.json", "chat_template", "config", "name"... InvalidArgument for
  // a key that is not there.
  std::string metadata(const std::string& key) const {
    std::size_t length = 0;
    check(onward_model_metadata(handle_, key.c_str(), nullptr, 0, &length));
    std::string text(length, '\0');
    check(onward_model_metadata(handle_, key.c_str(), &text[0], text.size(), &length));
    return text;
  }

  onward_model handle() const noexcept { return handle_; }

 private:
  Model() = default;

  onward_model handle_ = nullptr;
};

}  // namespace v1
}  // namespace onward
