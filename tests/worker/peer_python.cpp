#include "tests/worker/peer_python.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <stdexcept>

#include "fsdp/text/json.h"

namespace worker::testing {
namespace {

/// The process of tests/peers/forked.py that forks one program of tests/peers. It ends when its stdin is closed.
class Forking {
 public:
  Forking(const std::string& python, const std::string& program) {
    const std::string peers = ::test::source_folder() + "/tests/peers/";
    int requests[2], answers[2];
    if (::pipe2(requests, O_CLOEXEC) != 0 || ::pipe2(answers, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(requests[0], STDIN_FILENO);
      ::dup2(answers[1], STDOUT_FILENO);
      const std::string forked = peers + "forked.py", path = peers + program;
      ::execlp(python.c_str(), python.c_str(), "-B", forked.c_str(), path.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(requests[0]);
    ::close(answers[1]);
    requests_ = ::fdopen(requests[1], "w");
    answers_ = ::fdopen(answers[0], "r");
  }
  ~Forking() {
    std::fclose(requests_);
    ::waitpid(pid_, nullptr, 0);
    std::fclose(answers_);
  }
  Forking(const Forking&) = delete;
  Forking& operator=(const Forking&) = delete;

  /// The exit status of a program. -1: the process that forks programs has ended.
  int run(const fsdp::Json& request) {
    std::fprintf(requests_, "%s\n", request.dump().c_str());
    std::fflush(requests_);
    int number = 0, status = -1;
    return std::fscanf(answers_, "%d %d", &number, &status) == 2 ? status : -1;
  }

 private:
  pid_t pid_ = -1;
  FILE* requests_ = nullptr;
  FILE* answers_ = nullptr;
};

}  // namespace

void run_peer(const std::string& python, const std::string& program, const std::vector<std::string>& arguments,
              const std::filesystem::path& folder) {
  static std::map<std::string, Forking> all;
  auto& forking = all.try_emplace(program, python, program).first->second;
  const auto log = folder / "peer.log";
  fsdp::Json request;
  request["argv"].push_back(::test::source_folder() + "/tests/peers/" + program);
  for (const auto& word : arguments) request["argv"].push_back(word);
  request["out"] = log.native();
  request["err"] = log.native();
  ASSERT_EQ(forking.run(request), 0) << read_file(log);
}

}  // namespace worker::testing
