// A chat program without its own tokenizer: two `onward` commands run as child processes and
// convert text to token ids and ids to text. All three processes map the same pack, so they share
// the weights.
//
//   chat PACK            reads questions from stdin and prints each answer while it is generated
//
// To use another tokenizer, replace the lines of chat() below that write to and read from the
// commands. The pack contains the files of the tokenizer: Model::metadata("tokenizer.json"). C++17,
// POSIX.
#include <onward/onward.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// An `onward` command as a child process. This program writes its stdin. Its stdout is read by this
// program if requested, otherwise it is the stdout of this program.
class Command {
 public:
  Command(const std::vector<std::string>& words, bool read) {
    int in[2], out[2] = {-1, -1};
    if (pipe(in) != 0 || (read && pipe(out) != 0)) throw std::runtime_error("chat: no pipe");
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    child_ = fork();
    if (child_ < 0) throw std::runtime_error("chat: no process");
    if (child_ == 0) {
      dup2(in[0], STDIN_FILENO);
      if (read) dup2(out[1], STDOUT_FILENO);
      for (const int end : {in[0], in[1], out[0], out[1]}) {
        if (end >= 0) close(end);
      }
      execvp(argv[0], argv.data());
      std::perror(argv[0]);
      _exit(127);
    }
    close(in[0]);
    to_ = fdopen(in[1], "w");
    if (!read) return;
    close(out[1]);
    from_ = fdopen(out[0], "r");
  }
  ~Command() {
    std::fclose(to_);
    if (from_ != nullptr) std::fclose(from_);
    waitpid(child_, nullptr, 0);
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  void write_line(const std::string& line) {
    if (std::fputs((line + "\n").c_str(), to_) < 0 || std::fflush(to_) != 0) {
      throw std::runtime_error("chat: an onward command is gone");
    }
  }
  std::string read_line() {
    std::string line;
    for (int letter = std::fgetc(from_); letter != '\n'; letter = std::fgetc(from_)) {
      if (letter == EOF) throw std::runtime_error("chat: an onward command is gone");
      line.push_back(static_cast<char>(letter));
    }
    return line;
  }

 private:
  pid_t child_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

std::vector<std::int32_t> ids_of(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; words >> id;) ids.push_back(id);
  return ids;
}

void chat(const std::string& pack) {
  // Fork the commands before the engine starts threads.
  Command tokenize({"onward", "tokenize", "--chat", "--model", pack}, true);
  Command detokenize({"onward", "detokenize", "--model", pack}, false);
  const onward::Model model(pack);
  onward::Engine engine(model);
  for (std::string question; std::getline(std::cin, question);) {
    tokenize.write_line(question);
    engine.submit(onward::Request(ids_of(tokenize.read_line())).max_new_tokens(256));
    engine.run([&](const onward::Event& event) {
      event.throw_if_failed();
      if (event.has_token()) detokenize.write_line(std::to_string(event.token));
    });
    detokenize.write_line("");  // ends the answer
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: chat PACK\n";
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);  // a command that has ended is reported as an error
  try {
    chat(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
