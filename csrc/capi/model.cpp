// The functions onward_model_*: open packs and read their metadata.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "capi/handles.h"
#include "capi/options.h"
#include "capi/status.h"
#include "device/device.h"
#include "pack/pack.h"

using namespace onward;  // NOLINT: the functions below belong to C

namespace {

using capi::guarded;
using capi::require_pointer;

// Writes up to `capacity` values. The array may be null if the capacity is 0.
template <typename T>
void copy_out(const char* name, const T* from, size_t found, T* to, size_t capacity,
              size_t* count) {
  require_pointer("count", count);
  if (capacity > 0) require_pointer(name, to);
  std::copy_n(from, std::min(found, capacity), to);
  *count = found;
}

}  // namespace

onward_status onward_model_open(const char* path, const onward_model_options* options,
                                onward_model* model) {
  return guarded([&] {
    require_pointer("path", path);
    require_pointer("model", model);
    const capi::ModelSettings settings = capi::read_model_options(options);
    *model = capi::open_handle(std::make_shared<const Pack>(open_pack(
        path, Device(settings.device).make_weight_store(settings.threads), settings.options)));
  });
}

onward_status onward_model_close(onward_model model) {
  return guarded([&] { capi::take(model); });
}

onward_status onward_model_get_info(onward_model model, onward_model_info* info) {
  return guarded([&] {
    const std::shared_ptr<const Pack> pack = capi::find(model);
    require_pointer("info", info);
    const DecoderSpec& spec = pack->model->spec;
    onward_model_info found{};
    found.vocab_size = spec.vocab_size;
    found.max_context = spec.max_context;
    found.num_layers = spec.num_layers;
    found.hidden_size = spec.hidden_size;
    found.weight_bytes = static_cast<int64_t>(pack->model->store->bytes_used());
    found.bos_token_id = pack->vocabulary.bos_token_id;
    found.pad_token_id = pack->vocabulary.pad_token_id;
    found.num_eos_token_ids = static_cast<int64_t>(pack->vocabulary.eos_token_ids.size());
    capi::write_struct("model_info", found, info);
  });
}

onward_status onward_model_eos_token_ids(onward_model model, int32_t* ids, size_t capacity,
                                         size_t* count) {
  return guarded([&] {
    const std::shared_ptr<const Pack> pack = capi::find(model);
    const std::vector<int32_t>& found = pack->vocabulary.eos_token_ids;
    copy_out("ids", found.data(), found.size(), ids, capacity, count);
  });
}

onward_status onward_model_metadata(onward_model model, const char* key, char* text,
                                    size_t capacity, size_t* length) {
  return guarded([&] {
    const std::shared_ptr<const Pack> pack = capi::find(model);
    require_pointer("key", key);
    const auto found = pack->texts.find(key);
    if (found == pack->texts.end()) {
      std::string known;
      for (const auto& [name, value] : pack->texts) known += (known.empty() ? "" : ", ") + name;
      throw InvalidArgument("key: the model has no \"" + std::string(key) + "\", expected one of " +
                            (known.empty() ? "none at all" : known));
    }
    copy_out("text", found->second.data(), found->second.size(), text, capacity, length);
  });
}
