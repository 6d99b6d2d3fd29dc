// The engine for Python: its construction, and calls that run between two steps. bind_client.cpp
// binds its clients.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/python_engine.h"
#include "cache/codec_names.h"
#include "capi/wrap.h"
#include "device/device.h"
#include "engine/shared_engine.h"

namespace py = pybind11;

namespace {

using onward::Engine;
using onward::EngineOptions;
using onward::Model;
using onward::PyEngine;
using onward::Request;
using onward::SharedEngine;
using Poll = SharedEngine::Poll;

std::unique_ptr<PyEngine> make_engine(std::shared_ptr<Model> model, int threads,
                                      int64_t prefill_chunk_tokens, int64_t max_sequences,
                                      std::shared_ptr<Model> draft, int64_t max_context,
                                      const std::string& kv_keys, const std::string& kv_values,
                                      int64_t kv_window_tokens, bool kv_sinks,
                                      int64_t attention_window,
                                      std::optional<int64_t> kv_cache_bytes, bool prefix_cache,
                                      std::optional<int64_t> prefix_cache_bytes) {
  EngineOptions options;
  options.prefill_chunk_tokens = prefill_chunk_tokens;
  options.max_sequences = max_sequences;
  options.max_context = max_context;
  options.cache = {onward::kv_codec("kv_keys", kv_keys), onward::kv_codec("kv_values", kv_values),
                   kv_window_tokens, kv_sinks, attention_window};
  if (kv_cache_bytes) options.cache_bytes = *kv_cache_bytes;
  options.prefixes.reuse = prefix_cache;
  if (prefix_cache_bytes) options.prefixes.kept_bytes = *prefix_cache_bytes;
  auto backend = onward::Device(model->store->device()).make_backend(threads);
  return std::make_unique<PyEngine>(std::make_shared<SharedEngine>(
      std::move(model), std::move(backend), options, std::move(draft)));
}

// One request, from the arguments of Request.
int64_t submit(PyEngine& engine, const py::args& prompt, const py::kwargs& options) {
  const py::object made = py::type::of<Request>()(*prompt, **options);
  return engine.client().submit({made.cast<Request>()}).front();
}

py::array_t<float> logits(PyEngine& engine, const TokenIds& token_ids) {
  const std::vector<int32_t> ids = to_vector(token_ids);
  const std::vector<float> values =
      engine.alone([&](Engine& e, const Poll& poll) { return e.logits(ids, poll); });
  const auto vocab_size = static_cast<int64_t>(values.size() / ids.size());
  return py::array_t<float>({static_cast<int64_t>(ids.size()), vocab_size}, values.data());
}

py::array_t<double> score(PyEngine& engine, const TokenIds& token_ids) {
  const std::vector<int32_t> ids = to_vector(token_ids);
  const std::vector<double> scores =
      engine.alone([&](Engine& e, const Poll& poll) { return e.score(ids, poll); });
  return py::array_t<double>(static_cast<py::ssize_t>(scores.size()), scores.data());
}

// (group, coded, index of the block, its bytes) of each block.
using StoredBlocks = std::vector<std::tuple<int64_t, bool, int64_t, py::bytes>>;

StoredBlocks store_prefix(PyEngine& engine, const TokenIds& token_ids) {
  const std::vector<int32_t> ids = to_vector(token_ids);
  const std::vector<onward::StoredBlock> blocks =
      engine.alone([&](Engine& e, const Poll& poll) { return e.store_prefix(ids, poll); });
  StoredBlocks result;
  for (const onward::StoredBlock& block : blocks) {
    result.emplace_back(block.group, block.coded, block.index,
                        py::bytes(block.bytes.data(), block.bytes.size()));
  }
  return result;
}

void restore_prefix(PyEngine& engine, const TokenIds& token_ids,
                    const std::vector<std::tuple<int64_t, bool, int64_t, py::buffer>>& blocks) {
  const std::vector<int32_t> ids = to_vector(token_ids);
  std::vector<onward::StoredBlock> stored;
  for (const auto& [group, coded, index, buffer] : blocks) {
    const py::buffer_info info = buffer.request();
    if (PyBuffer_IsContiguous(info.view(), 'C') == 0) {
      throw onward::InvalidArgument("block: is strided, expected contiguous memory");
    }
    const char* bytes = static_cast<const char*>(info.ptr);
    stored.push_back({group, coded, index, {bytes, bytes + info.size * info.itemsize}});
  }
  engine.alone([&](Engine& e, const Poll&) { e.restore_prefix(ids, stored); });
}

py::dict stats(PyEngine& engine) {
  const onward::EngineStats stats = engine.alone([](Engine& e, const Poll&) { return e.stats(); });
  py::dict result;
  result["steps"] = stats.steps;
  result["prefill_tokens"] = stats.prefill_tokens;
  result["decode_tokens"] = stats.decode_tokens;
  result["kv_computations"] = stats.kv_computations;
  result["running"] = stats.running;
  result["waiting"] = stats.waiting;
  result["preempted"] = stats.preempted;
  result["sampled_on_device"] = stats.sampled_on_device;
  result["logits_rows_read"] = stats.logits_rows_read;
  result["cache_blocks_in_use"] = stats.cache_blocks_in_use;
  result["cache_block_bytes"] = stats.cache_block_bytes;
  result["cache_bytes_reserved"] = stats.cache_bytes_reserved;
  result["cache_bytes"] = stats.cache_bytes;
  result["cache_bytes_limit"] = stats.cache_bytes_limit;
  result["prefix_tokens"] = stats.prefix_tokens;
  result["prefix_bytes"] = stats.prefix_bytes;
  result["prefix_evictions"] = stats.prefix_evictions;
  result["prefix_lookups"] = stats.prefixes.lookups;
  result["prefix_hits"] = stats.prefixes.hits;
  result["prefix_hit_tokens"] = stats.prefixes.hit_tokens;
  result["prefix_lookup_tokens"] = stats.prefixes.lookup_tokens;
  return result;
}

}  // namespace

void bind_engine(py::module_& m) {
  py::class_<PyEngine>(m, "Engine")
      .def(py::init(&make_engine), py::arg("model"), py::kw_only(), py::arg("threads"),
           py::arg("prefill_chunk_tokens"), py::arg("max_sequences") = 256,
           py::arg("draft") = py::none(), py::arg("max_context") = 0, py::arg("kv_keys") = "exact",
           py::arg("kv_values") = "exact", py::arg("kv_window_tokens") = 128,
           py::arg("kv_sinks") = true, py::arg("attention_window") = 0,
           py::arg("kv_cache_bytes") = py::none(), py::arg("prefix_cache") = true,
           py::arg("prefix_cache_bytes") = py::none())
      .def("new_client", &PyEngine::new_client)
      .def("close", &PyEngine::close)
      .def("check_open", [](PyEngine& engine) { engine.client().core(); })
      .def("submit", &submit)
      .def("step",
           [](PyEngine& engine) {
             py::list events;
             for (const onward::Event& event : engine.client().step()) {
               events.append(to_python(event));
             }
             return events;
           })
      .def(
          "cancel",
          [](PyEngine& engine, int64_t request, std::optional<int64_t> sequence) {
            engine.client().cancel(request, sequence);
          },
          py::arg("request"), py::arg("sequence") = py::none())
      .def("logits", &logits, py::arg("token_ids"))
      .def("score", &score, py::arg("token_ids"))
      .def("store_prefix", &store_prefix, py::arg("token_ids"))
      .def("restore_prefix", &restore_prefix, py::arg("token_ids"), py::arg("blocks"))
      .def("forget_prefixes",
           [](PyEngine& engine) {
             engine.alone([](Engine& e, const Poll&) { e.forget_prefixes(); });
           })
      .def("stats", &stats)
      .def(
          "new_handle",
          [](const PyEngine& engine, std::vector<int32_t> eos_token_ids) {
            return onward::capi::open_engine_handle(engine.shared(), std::move(eos_token_ids));
          },
          py::arg("eos_token_ids"))
      .def_property_readonly(
          "backend",
          [](const PyEngine& engine) { return engine.shared()->engine().backend().name(); })
      .def_property_readonly("threads", [](const PyEngine& engine) {
        return engine.shared()->engine().backend().threads();
      });
}
