#include "sampling/chain.h"

#include <algorithm>

#include "base/error.h"

namespace onward {
namespace {

struct Order {
  const char* name;
  int Places::* place;
};
// By ChainOrder.
constexpr Order kOrders[] = {
    {"hf", &Places::hf}, {"vllm", &Places::vllm}, {"llama.cpp", &Places::llama_cpp}};

const Order& order_of(ChainOrder order) { return kOrders[static_cast<size_t>(order)]; }

template <typename Stage>
std::vector<const Stage*> stages_on(std::span<const Stage> stages, const SamplingOptions& options) {
  std::vector<const Stage*> on;
  for (const Stage& stage : stages) {
    if (stage.is_on(options) && !(stage.filters && options.mirostat != 0)) on.push_back(&stage);
  }
  const auto place = order_of(options.order).place;
  std::stable_sort(on.begin(), on.end(), [&](const Stage* a, const Stage* b) {
    return a->places.*place < b->places.*place;
  });
  return on;
}

}  // namespace

Chain chain_of(const SamplingOptions& options) {
  Chain chain = {stages_on(score_stages(), options), {}};
  if (options.temperature != 0) chain.draw = stages_on(draw_stages(), options);
  return chain;
}

std::vector<std::string> stage_names(const SamplingOptions& options) {
  const Chain chain = chain_of(options);
  std::vector<std::string> names;
  for (const ScoreStage* stage : chain.processors) names.push_back(stage->name());
  for (const DrawStage* stage : chain.draw) names.push_back(stage->name());
  names.push_back(chain.draw.empty() ? "greedy" : "draw");
  return names;
}

ChainOrder chain_order(const std::string& name) {
  for (size_t i = 0; i < std::size(kOrders); ++i) {
    if (name == kOrders[i].name) return static_cast<ChainOrder>(i);
  }
  throw InvalidArgument("sampling_order: found \"" + name +
                        "\", expected \"hf\", \"vllm\" or \"llama.cpp\"");
}

const char* chain_order_name(ChainOrder order) { return order_of(order).name; }

std::vector<std::string> chain_order_names() {
  std::vector<std::string> names;
  for (const Order& order : kOrders) names.push_back(order.name);
  return names;
}

}  // namespace onward
