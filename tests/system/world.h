#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tests/claimed_port.h"
#include "tests/system/process.h"

namespace test {

using Json = nlohmann::json;

/// One musterd with its own folder and ports, and the command line that talks to it. At the end every job is cancelled
/// and no process is left; a musterd that does not leave well then, or a sanitizer's report, fails the test.
class World {
 public:
  struct Options {
    std::filesystem::path data = {};  // empty: data_name in a fresh temporary folder
    std::string data_name = "data";
    std::vector<std::string> daemon_flags = {};
    std::map<std::string, std::string> daemon_environment = {};
    std::string host = "127.0.0.1";  // whose gRPC port it is
    bool any_ports = false;          // what the system gives and musterd remembers, instead of claimed ones
    std::string user = {};  // whose musterd and commands they are; empty: of whoever runs the tests. Takes root
  };
  World() : World(Options{}) {}
  explicit World(Options options);
  ~World();

  const std::filesystem::path& folder() const { return folder_.path(); }
  const std::filesystem::path& data() const { return data_; }
  static std::filesystem::path program(const std::string& name);

  /// Why `user` could not run the programs of this build; empty: it can.
  static std::string cannot_run_as(const std::string& user);

  /// Starts musterd and waits until it is ready; fails the test if it is not.
  void start_daemon();
  /// Starts it and returns at once, for daemons that are expected to refuse.
  Process& launch_daemon();
  void kill_daemon();  // SIGKILL
  void stop_daemon();  // SIGTERM, waits
  Process& daemon() { return *daemon_; }
  std::string daemon_log() const { return read_file(folder() / "musterd.err"); }
  /// Address and token as environment variables.
  std::map<std::string, std::string> client_environment() const;

  Finished cli(const std::vector<std::string>& arguments, std::chrono::milliseconds limit = 60s);
  Json json(const std::vector<std::string>& arguments);

  /// Writes the text as a job file and submits it; fails the test if it is refused.
  std::string submit(const std::string& toml, const std::vector<std::string>& more = {});
  Json show(const std::string& job) { return json({"show", job}); }
  Json metrics(const std::string& job) { return json({"metrics", job}); }
  /// Waits until `done(job)`; the newest view. Fails the test after the limit.
  Json until(const std::string& job, const std::function<bool(const Json&)>& done,
             std::chrono::milliseconds limit = 60s);
  Json until_state(const std::string& job, const std::string& state, std::chrono::milliseconds limit = 90s);
  Json until_step(const std::string& job, int step, std::chrono::milliseconds limit = 60s);
  std::filesystem::path checkpoints(const std::string& job) const { return data_ / "jobs" / job / "checkpoints"; }

 private:
  std::vector<std::string> as_user(std::vector<std::string> argv) const;
  void cancel_all();
  void expect_no_sanitizer_report() const;

  TemporaryFolder folder_;
  std::filesystem::path data_;
  std::string user_;
  std::vector<std::string> daemon_flags_;
  std::map<std::string, std::string> daemon_environment_;
  ClaimedPort grpc_port_;  // kept, so that ranks find a restarted daemon
  ClaimedPort http_port_;
  std::string listen_;
  std::string http_;
  std::unique_ptr<Process> daemon_;
  int job_files_ = 0;
};

/// A small two-rank Llama on the built-in text. A step takes at least step_delay_ms.
struct TrainingJob {
  int steps = 40;
  int every_steps = 10;
  int step_delay_ms = 0;
  int ranks = 2;
  std::string more = {};  // further keys of [requeue], then further tables
};
std::string training_job(const TrainingJob& job);

/// A job of one rank that runs a shell script.
std::string shell_job(const std::string& script, const std::string& more = "");

Json last(const Json& array);
/// Checks that a job's metrics have steps 1 to `last`, each once and in order.
void expect_every_step(const Json& rows, std::size_t last);
/// Signals a process that the controller named; refuses ids below 2.
void signal_rank(const Json& job, int rank, int number);

}  // namespace test
