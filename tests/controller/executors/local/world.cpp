#include "tests/controller/executors/local/world.h"

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "agent/protocol/attempt_folder.h"
#include "base/process_table.h"
#include "controller/common/data_folder.h"
#include "controller/executors/local/follower.h"

namespace test {

using namespace agent::protocol;
using namespace executors::local;
using base::kill_exactly;

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  for (const auto deadline = SteadyClock::now() + limit; SteadyClock::now() < deadline;) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return condition();
}

std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::size_t count_lines(const std::filesystem::path& path) {
  const auto text = read_file(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

bool is_alive(std::int64_t pid) {
  const auto stat = base::read_stat(pid);
  return stat && !stat->is_dead();
}

int run_program(const std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  for (const auto& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  pid_t pid = 0;
  if (::posix_spawn(&pid, pointers[0], nullptr, nullptr, pointers.data(), environ) != 0) return -1;
  int ended = -1;
  ::waitpid(pid, &ended, 0);
  return ended;
}

executors::FactSink Facts::sink() {
  return [this](core::JobId, core::EventBody fact) {
    std::lock_guard lock(mutex_);
    facts_.push_back(std::move(fact));
    changed_.notify_all();
  };
}

std::vector<core::EventBody> Facts::all() const {
  std::lock_guard lock(mutex_);
  return facts_;
}

bool Facts::wait_for(std::size_t count) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kLimit, [&] { return facts_.size() >= count; });
}

std::optional<core::RankExited> Facts::exit_of(core::RankNumber rank) const {
  std::optional<core::RankExited> found;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kLimit, [&] {
    for (const auto& fact : facts_) {
      const auto* exited = std::get_if<core::RankExited>(&fact);
      if (exited && exited->rank == rank) found = *exited;
    }
    return found.has_value();
  });
  return found;
}

World::World() {
  auto name = (std::filesystem::temp_directory_path() / "muster-local-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
  top_ = name;
  use_root(top_);
}

World::~World() {
  end_controller();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(top_)) {
    if (entry.path().filename() != status_file(0)) continue;
    const auto known = read_status(open_folder(entry.path().parent_path()).get());
    if (!known.started || known.started->boot_id != base::boot_id()) continue;
    const auto agent = base::read_stat(known.started->session);
    const bool same =
        agent && agent->session == agent->pid && agent->start_time <= known.started->ranks.front().start_time;
    if (!known.ended && same) kill_exactly(*agent);
    eventually([&] {
      const auto left = leftovers(*known.started);
      for (const auto& process : left) kill_exactly(process);
      return left.empty();
    });
  }
  std::error_code ignored;
  std::filesystem::remove_all(top_, ignored);
}

void World::use_root(const std::filesystem::path& root) {
  end_controller();
  root_ = root;
  std::filesystem::create_directories(root_ / "work");
  restart_controller();
}

void World::end_controller() {
  desk_.hand_to(nullptr);
  executor_.reset();
}

void World::restart_controller(const std::string& agent) {
  end_controller();
  executor_ = make_local_executor({.root = root_,
                                   .agent_program = agent,
                                   .on_step = on_step_,
                                   .look_every = look_every_,
                                   .launch_limit = launch_limit_});
  executor_->start(facts_.sink());
  desk_.hand_to(executor_.get());
}

core::AttemptLaunched World::must_launch(const executors::LaunchRequest& request) {
  const auto answer = launch(request);
  if (const auto* failed = std::get_if<core::AttemptLaunchFailed>(&answer)) {
    ADD_FAILURE() << "not launched: " << failed->reason;
    return {};
  }
  return std::get<core::AttemptLaunched>(answer);
}

std::filesystem::path World::folder(core::JobId job) const {
  return common::DataFolder(root_).attempt({job, 1});
}

std::filesystem::path World::log(core::JobId job, core::RankNumber rank) const {
  return folder(job) / "logs" / ("rank-" + std::to_string(rank) + ".log");
}

agent::protocol::Status World::status(core::JobId job) const {
  return read_status(open_folder(folder(job)).get());
}

std::int64_t World::agent_of(core::JobId job) const {
  return status(job).started->session;
}

}  // namespace test
