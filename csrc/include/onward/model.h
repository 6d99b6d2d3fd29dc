// Part of onward/onward.h: an open pack. The fields of ModelOptions and ModelInfo come from the C
// structs in onward_c.h, which explains each of them.
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

// A model. It can be moved and closes itself. Several threads may use it. Engines of the model stay
// usable after it is closed. Every call on a closed or moved-from model throws Closed.
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

  // A text of the pack: "tokenizer.json", "chat_template", "config", "name"... Throws
  // InvalidArgument for an unknown key.
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
