// Generates for several prompts at once; each gets the output that it would get alone.
//
//   generate PACK [-n COUNT] "ID ID ID" ["ID ID"...]
//
// Prints lines of `PROMPT TOKEN` while tokens are generated; prompts count from 0. Ctrl-C ends the
// program at once with exit code 130; the printed tokens are valid. C++17.
#include <onward/onward.h>

#include <csignal>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// While an object of this class exists, Ctrl-C interrupts the engine's step.
class CtrlC {
 public:
  explicit CtrlC(onward::Engine& engine) {
    engine_ = &engine;
    std::signal(SIGINT, [](int) { engine_->interrupt(); });
  }
  ~CtrlC() { std::signal(SIGINT, SIG_DFL); }
  CtrlC(const CtrlC&) = delete;
  CtrlC& operator=(const CtrlC&) = delete;

 private:
  static onward::Engine* engine_;
};

onward::Engine* CtrlC::engine_ = nullptr;

std::vector<std::int32_t> ids_of(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; words >> id;) ids.push_back(id);
  if (!words.eof()) throw std::invalid_argument("'" + text + "': expected token ids");
  return ids;
}

void generate(const std::string& pack, std::int64_t count,
              const std::vector<std::string>& prompts) {
  const onward::Model model(pack);
  onward::Engine engine(model);
  const CtrlC ctrl_c(engine);

  std::map<std::int64_t, std::size_t> places;  // by request id
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    places[engine.submit(onward::Request(ids_of(prompts[i])).max_new_tokens(count))] = i;
  }
  engine.run([&](const onward::Event& event) {
    event.throw_if_failed();
    if (event.has_token()) {
      std::cout << places[event.request] << ' ' << event.token << std::endl;
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::int64_t count = 32;
  if (arguments.size() >= 3 && arguments[1] == "-n") {
    count = std::stoll(arguments[2]);
    arguments.erase(arguments.begin() + 1, arguments.begin() + 3);
  }
  if (arguments.size() < 2) {
    std::cerr << "usage: generate PACK [-n COUNT] \"ID ID ID\" [\"ID ID\"...]\n";
    return 2;
  }
  try {
    generate(arguments[0], count, {arguments.begin() + 1, arguments.end()});
    return 0;
  } catch (const onward::Interrupted&) {
    return 130;
  } catch (const std::exception& error) {
    std::cerr << "generate: " << error.what() << '\n';
    return 1;
  }
}
