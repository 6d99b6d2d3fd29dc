// What test_cpp_interface.py compares with Python, case by case: `cpp_interface PACK CASE`. Prints
// what it saw; ends with 1 where something must not be.
#include <onward/onward.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using onward::Engine;
using onward::Event;
using onward::Model;
using onward::Request;

const std::vector<std::int32_t> kPrompt = {5, 17, 200};

void require(bool good, const char* what) {
  if (!good) throw std::logic_error(std::string("not so: ") + what);
}

template <typename Expected>
void require_error(const char* what, const std::function<void()>& body) {
  try {
    body();
  } catch (const Expected& error) {
    require(std::string(error.what()).size() > 5, what);
    return;
  }
  require(false, what);
}

void print(const Event& event) {
  event.throw_if_failed();
  if (event.has_token()) std::cout << event.sequence << ' ' << event.token << '\n';
}

void info(const Model& model, Engine& engine) {
  const onward::ModelInfo info = model.info();
  std::cout << info.vocab_size << ' ' << info.max_context << ' ' << info.bos_token_id << '\n';
  for (const std::int32_t id : model.eos_token_ids()) std::cout << id << ' ';
  std::cout << '\n' << model.metadata("name") << '\n' << model.metadata("tokenizer.json") << '\n';
  require_error<onward::InvalidArgument>("a key", [&] { model.metadata("nothing like it"); });
  require(engine.model().info().vocab_size == info.vocab_size, "the engine's model");
}

void sampled(const Model&, Engine& engine) {
  onward::Sampling sampling;
  sampling.temperature = 1;
  sampling.top_k = 50;
  sampling.seed = 11;
  sampling.order = "vllm";
  sampling.logit_bias = {{7, 2.5}};
  sampling.suppress_tokens = {1, 2};
  engine.submit(Request(kPrompt).max_new_tokens(12).num_sequences(2).sampling(sampling));
  engine.run(print);
}

void allowed(const Model&, Engine& engine) {
  onward::Sampling sampling;
  sampling.allowed_token_ids = std::vector<std::int32_t>{33, 44};
  engine.submit(Request(kPrompt).max_new_tokens(6).sampling(sampling));
  engine.run(print);
  sampling.allowed_token_ids->clear();
  require_error<onward::InvalidArgument>("no token allowed", [&] {
    engine.submit(Request(kPrompt).max_new_tokens(6).sampling(sampling));
  });
}

void beams(const Model&, Engine& engine) {
  onward::Beams beams;
  beams.num_beams = 3;
  beams.num_return_sequences = 2;
  engine.submit(Request(kPrompt).max_new_tokens(6).beams(beams));
  engine.run(print);
}

void logprobs(const Model&, Engine& engine) {
  engine.submit(Request(kPrompt).max_new_tokens(3).logprobs(2));
  engine.run([](const Event& event) {
    if (!event.has_token()) return;
    std::printf("%d %.17g %zu %d\n", event.token, event.logprob, event.top.size(),
                event.top.at(0).token);
  });
}

void rules(const Model&, Engine& engine) {
  engine.submit(Request(kPrompt)
                    .max_new_tokens(50)
                    .score_rule([](onward::Span<const std::int32_t> tokens, auto scores) {
                      for (float& score : scores) score = -INFINITY;
                      scores[100 + tokens.size()] = 0;
                    })
                    .end_rule([](auto tokens) { return tokens.size() == 3 + 4; }));
  engine.run(print);
}

// Who a rule holds is let go when its request has ended, however it ends.
void lifetimes(const Model&, Engine& engine) {
  const auto held = std::make_shared<int>(0);
  const auto submit = [&](std::int64_t sequences) {
    return engine.submit(Request(kPrompt).max_new_tokens(3).num_sequences(sequences).score_rule(
        [held](auto, auto) { ++*held; }));
  };
  submit(1);
  require(held.use_count() == 2, "kept beyond the Request");
  engine.run([](const Event&) {});
  require(held.use_count() == 1 && *held == 3, "let go at the end");
  const std::int64_t dropped = submit(1);
  engine.step();
  engine.cancel(dropped);
  require(engine.active() == 0, "cancelled");
  engine.step();
  require(held.use_count() == 1, "let go after cancelling");
  const std::int64_t twice = submit(2);
  engine.step();
  engine.cancel(twice, 0);
  require(engine.active() == 1, "one sequence left");
  engine.cancel(twice, 1);
  engine.run([](const Event&) { require(false, "no event"); });
  engine.step();
  require(held.use_count() == 1, "let go with the last sequence");
  require_error<onward::InvalidArgument>(
      "a bad request", [&] { engine.submit(Request({}).score_rule([held](auto, auto) {})); });
  require(held.use_count() == 1 && engine.active() == 0, "refused");
  submit(1);
  engine.close();
  require(held.use_count() == 1, "closed");
}

void throwing(const Model&, Engine& engine) {
  engine.submit(Request(kPrompt).max_new_tokens(3).score_rule(
      [](auto, auto) { throw std::domain_error("mine"); }));
  engine.submit(Request(kPrompt).max_new_tokens(3).end_rule(
      [](auto) -> bool { throw std::domain_error("mine"); }));
  engine.submit(Request(kPrompt).max_new_tokens(3));
  int failed = 0, tokens = 0;
  engine.run([&](const Event& event) {
    if (event.finish == onward::Finish::error) {
      ++failed;
      require_error<std::domain_error>("rethrown", [&] {
        try {
          event.throw_if_failed();
        } catch (const std::domain_error& error) {
          throw std::domain_error(std::string("it was ") + error.what());
        }
      });
    } else {
      tokens += event.has_token() && event.request == 2;
    }
  });
  std::cout << failed << ' ' << tokens << '\n';
}

void trace(const Model&, Engine& engine) {
  std::int64_t decoded = 0;
  int steps = 0;
  engine.set_trace([&](const onward::StepTrace& step) {
    decoded += step.decode_tokens;
    ++steps;
    throw std::runtime_error("dropped");
  });
  engine.submit(Request(kPrompt).max_new_tokens(7));
  engine.run([](const Event&) {});
  require(steps == engine.stats().steps && decoded == engine.stats().decode_tokens, "told all");
  engine.set_trace(nullptr);
  engine.submit(Request(kPrompt).max_new_tokens(7));
  engine.run([](const Event&) {});
  require(steps < engine.stats().steps, "told no more");
  std::cout << decoded << '\n';
}

void values(const Model& model, Engine& engine) {
  for (const double logprob : engine.score(kPrompt)) std::printf("%.17g\n", logprob);
  const std::vector<float> logits = engine.logits(kPrompt);
  require(static_cast<std::int64_t>(logits.size()) == 3 * model.info().vocab_size, "the shape");
  for (const float logit : logits) std::printf("%.9g\n", static_cast<double>(logit));
  require_error<onward::InvalidArgument>("no ids", [&] { engine.score({}); });
}

void closed(const Model&, Engine& engine) {
  Engine other = std::move(engine);
  require_error<onward::Closed>("moved from", [&] { engine.step(); });
  engine.interrupt();
  require(other.stats().steps == 0, "moved to");
  other.close();
  other.close();
  require_error<onward::Closed>("closed", [&] { other.submit(Request(kPrompt)); });
  require_error<onward::Closed>("no handle", [] { Engine::from_handle(12345); });
}

void interrupted(const Model& model, Engine& engine) {
  engine.submit(Request(kPrompt).max_new_tokens(5));
  engine.interrupt();
  require_error<onward::Interrupted>("interrupted", [&] { engine.step(); });
  engine.run(print);
  // A model that is gone leaves its engine.
  Model second = Model::from_handle(nullptr);
  require_error<onward::Closed>("a null model", [&] { second.info(); });
  require_error<onward::Closed>("a null model", [&] { Engine of(second); });
  require(model.info().vocab_size > 0, "the first is open");
}

// Four threads submit requests with rules to one Engine and read whatever comes.
void threads(const Model&, Engine& engine) {
  constexpr int kThreads = 4, kRequests = 10, kTokens = 5;
  std::atomic<int> tokens{0}, calls{0}, ends{0};
  std::vector<std::thread> crowd;
  for (int i = 0; i < kThreads; ++i) {
    crowd.emplace_back([&] {
      for (int j = 0; j < kRequests; ++j) {
        engine.submit(
            Request(kPrompt).max_new_tokens(kTokens).score_rule([&](auto, auto) { ++calls; }));
        if (j % 3 == 2) {
          engine.run([&](const Event& event) {
            tokens += event.has_token();
            ends += event.ends_request;
          });
        }
      }
    });
  }
  for (std::thread& thread : crowd) thread.join();
  engine.run([&](const Event& event) {
    tokens += event.has_token();
    ends += event.ends_request;
  });
  std::cout << ends << ' ' << tokens << ' ' << calls << '\n';
}

// Two handles of one engine: each hears its own requests alone, and they meet in the same steps.
void shared(const Model&, Engine& engine) {
  Engine other = engine.share();
  const std::int64_t first = engine.submit(Request(kPrompt).max_new_tokens(6));
  const std::int64_t second = other.submit(Request({9}).max_new_tokens(6));
  require(first != second && engine.stats().running == 2, "one engine");
  engine.run([&](const Event& event) {
    require(event.request == first, "its own events");
    print(event);
  });
  other.run([&](const Event& event) {
    require(event.request == second, "its own events");
    if (event.has_token()) std::cout << "1 " << event.token << '\n';
  });
  require(engine.stats().steps < 12, "the same steps");
  engine.close();
  require(other.stats().running == 0, "goes on");
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, void (*)(const Model&, Engine&)> cases = {
      {"info", info},           {"sampled", sampled},   {"allowed", allowed},
      {"beams", beams},         {"logprobs", logprobs}, {"rules", rules},
      {"lifetimes", lifetimes}, {"throwing", throwing}, {"trace", trace},
      {"values", values},       {"closed", closed},     {"interrupted", interrupted},
      {"threads", threads},     {"shared", shared}};
  if (argc != 3 || cases.count(argv[2]) == 0) return 2;
  try {
    onward::ModelOptions options;
    options.verify = 1;
    const Model model(argv[1], options);
    onward::EngineOptions engine_options;
    engine_options.threads = 2;
    engine_options.kv_keys = "exact";
    Engine engine(model, engine_options);
    cases.at(argv[2])(model, engine);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
