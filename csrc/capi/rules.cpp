#include "capi/rules.h"

#include <string>

#include "capi/status.h"

namespace onward::capi {
namespace {

class CScoreRule final : public ScoreRule {
 public:
  CScoreRule(onward_score_rule rule, void* context) : rule_(rule), context_(context) {}

  void change(const std::vector<int32_t>& tokens, float* scores, int64_t vocab_size) override {
    const onward_status status =
        rule_(context_, tokens.data(), tokens.size(), scores, static_cast<size_t>(vocab_size));
    if (status == ONWARD_OK) return;
    const bool known = status > ONWARD_OK && status <= ONWARD_INTERNAL_ERROR;
    throw RuleFailed(known ? status : onward_status{ONWARD_INVALID_ARGUMENT},
                     "score_rule: returned " + std::to_string(status) + " (" +
                         onward_status_name(status) + "), expected ONWARD_OK");
  }

 private:
  onward_score_rule rule_;
  void* context_;
};

class CEndRule final : public EndRule {
 public:
  CEndRule(onward_end_rule rule, void* context) : rule_(rule), context_(context) {}

  bool ends(const std::vector<int32_t>& tokens) override {
    const int32_t answer = rule_(context_, tokens.data(), tokens.size());
    if (answer == 0 || answer == 1) return answer == 1;
    throw InvalidArgument("end_rule: returned " + std::to_string(answer) + ", expected 0 or 1");
  }

 private:
  onward_end_rule rule_;
  void* context_;
};

}  // namespace

std::shared_ptr<ScoreRule> score_rule(onward_score_rule rule, void* context) {
  return rule == nullptr ? nullptr : std::make_shared<CScoreRule>(rule, context);
}

std::shared_ptr<EndRule> end_rule(onward_end_rule rule, void* context) {
  return rule == nullptr ? nullptr : std::make_shared<CEndRule>(rule, context);
}

}  // namespace onward::capi
