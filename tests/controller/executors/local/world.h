#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/protocol/facts.h"
#include "controller/executors/local/local_executor.h"
#include "tests/controller/executors/local/agent_desk.h"
#include "tests/controller/executors/local/script_request.h"
#include "tests/places.h"

namespace test {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;
inline constexpr auto kLimit = 10s;  // of a wait for what must come

/// Polls every 5 ms; false after the limit.
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = kLimit);
std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);
std::size_t count_lines(const std::filesystem::path& path);
bool is_alive(std::int64_t pid);
/// Starts a program, waits for its end, returns waitpid's status.
int run_program(const std::vector<std::string>& argv);

/// Facts that an executor told.
class Facts {
 public:
  executors::FactSink sink();
  std::vector<core::EventBody> all() const;
  /// False if there are still fewer than `count` after kLimit.
  bool wait_for(std::size_t count) const;
  template <typename T>
  std::vector<T> of() const {
    std::vector<T> result;
    for (const auto& fact : all()) {
      if (const auto* wanted = std::get_if<T>(&fact)) result.push_back(*wanted);
    }
    return result;
  }
  /// How rank `rank` ended, waiting for it up to kLimit.
  std::optional<core::RankExited> exit_of(core::RankNumber rank) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<core::EventBody> facts_;
};

/// A data folder, executors on it, and nothing left of them at the end, whatever happened to the test.
class World : public ::testing::Test {
 protected:
  World();
  ~World() override;

  /// The agents go on, and nobody listens to them.
  void end_controller();
  /// A new executor, which takes over from the one before (that is shut down first).
  void restart_controller(const std::string& agent = ::test::built_program("muster-agent"));
  executors::LaunchRequest request_of(core::JobId job, const std::string& script, std::size_t ranks = 1) const {
    return script_request(root_, job, script, ranks, desk_.address());
  }
  /// Stops an attempt as musterd does: its agent is told, and the executor knows.
  void stop(const core::AttemptKey& key, const executors::StopRequest& how) {
    desk_.stop(key, how);
    executor_->stop(key, how);
  }
  executors::LaunchAnswer launch(const executors::LaunchRequest& request) {
    return executor_->launcher(request).launch(request);
  }
  std::optional<executors::LaunchAnswer> withdraw(const executors::LaunchRequest& request) {
    return executor_->launcher(request).withdraw(request);
  }
  executors::LaunchAnswer launch(core::JobId job, const std::string& script, std::size_t ranks = 1) {
    return launch(request_of(job, script, ranks));
  }
  /// Fails the test if it was not launched.
  core::AttemptLaunched must_launch(const executors::LaunchRequest& request);
  core::AttemptLaunched must_launch(core::JobId job, const std::string& script, std::size_t ranks = 1) {
    return must_launch(request_of(job, script, ranks));
  }
  std::filesystem::path folder(core::JobId job) const;
  std::filesystem::path log(core::JobId job, core::RankNumber rank) const;
  agent::protocol::Status status(core::JobId job) const;
  std::int64_t agent_of(core::JobId job) const;
  void use_root(const std::filesystem::path& root);

  std::filesystem::path top_;
  std::filesystem::path root_;
  std::chrono::milliseconds look_every_{5000};
  std::chrono::milliseconds launch_limit_{30'000};
  std::function<void(std::string_view)> on_step_;  // of launch(); see LocalOptions
  Facts facts_;
  AgentDesk desk_;
  std::unique_ptr<executors::Executor> executor_;
};

}  // namespace test
