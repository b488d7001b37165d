#include "controller/executors/local/local_executor.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "agent/environment/rank_variables.h"
#include "agent/protocol/attempt_folder.h"
#include "agent/protocol/launch.h"
#include "base/durable_file.h"
#include "base/process_table.h"
#include "controller/common/changes.h"
#include "controller/common/data_folder.h"
#include "controller/common/loop.h"
#include "controller/executors/local/follower.h"
#include "controller/executors/local/start.h"
#include "spec/variables.h"

namespace executors::local {
namespace {

using namespace agent::protocol;
using base::Fd;
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookAgain{5};
// For an agent that a controller before us has started. Other launches wait meanwhile, and this one is tried again.
constexpr std::chrono::milliseconds kOthersPatience{5000};

bool has_number(const core::MachineShare& share) {
  return std::ranges::any_of(share.gpus, [](const auto& gpu) { return identity_by_name(gpu).number.has_value(); });
}

/// The devices that each rank sees, as CUDA_VISIBLE_DEVICES has them; none: ranks are given none.
std::vector<std::string> devices_of_ranks(const LaunchRequest& request, const spec::Environment& base_env,
                                          const std::optional<std::string>& allowed) {
  std::vector<std::string> devices;
  if (request.wish.gpus_of_rank == 0) return devices;
  const auto inherited = base_env.find(spec::variable::kVisibleDevices);
  const auto all = allowed.value_or(inherited == base_env.end() ? "" : inherited->second);
  for (std::uint32_t rank = 0; rank < request.ranks_of_node(); ++rank) {
    devices.push_back(agent::environment::visible_devices(all, request.wish.gpus_of_rank, rank).value_or(all));
  }
  return devices;
}

Launch launch_of(const LaunchRequest& request, const std::string& program, std::uint16_t port,
                 const LocalOptions& options, const OwnMachine& machine) {
  auto base_env = request.base_env;
  // A number means what nvidia-smi and musterd mean by it.
  if (request.share && has_number(*request.share)) base_env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  const auto allowed = allowed_devices(request, machine);
  return {.argv = request.argv,
          .env = request.env,
          .working_folder = request.working_folder,
          .log_folder = request.log_folder,
          .job_name = request.job_name,
          .log_link = request.batch ? request.slurm.output : std::string(),
          .is_command = request.is_command,
          .report = request.report,
          .own_launcher = request.own_launcher,
          .batch = request.batch,
          .local = LocalLaunch{.program = program,
                               .base_env = base_env,
                               .ranks = request.ranks_of_node(),
                               .allowed_devices = allowed,
                               .devices = devices_of_ranks(request, base_env, allowed),
                               .master_port = port,
                               .open_files = options.open_files}};
}

/// Ranks as processes of this machine: see make_local_executor().
class LocalExecutor : public Executor, public AttemptLauncher {
 public:
  explicit LocalExecutor(LocalOptions options)
      : options_(std::move(options)), machine_(options_.machine), work_(io_.get_executor()) {}
  ~LocalExecutor() override { close(); }

  std::string name() const override { return "local"; }
  void start(FactSink sink) override {
    sink_ = std::move(sink);
    thread_ = std::thread([this] { io_.run(); });
  }

  void shutdown() override { close(); }

  std::vector<Unfit> unfit(const LaunchRequest& request) const override {
    return unfit_for_local(request, own_machine(), options_.devices);
  }
  OwnMachine own_machine() const override {
    const std::lock_guard lock(machine_mutex_);
    return machine_;
  }
  void learn(OwnMachine machine) override {
    {
      const std::lock_guard lock(machine_mutex_);
      machine_ = std::move(machine);
    }
    if (machine_sink_) machine_sink_();
  }
  void set_machine_sink(std::function<void()> changed) override { machine_sink_ = std::move(changed); }
  AttemptLauncher& launcher(const LaunchRequest&) override { return *this; }
  LaunchAnswer launch(const LaunchRequest& request) override {
    const auto failed = [&](const std::string& reason, bool retryable) {
      return core::AttemptLaunchFailed{request.key.number, reason, retryable};
    };
    bool may_run = true;
    try {
      return find_or_start(request, may_run);
    } catch (const Impossible& error) {
      return failed(error.what(), false);
    } catch (const std::invalid_argument& error) {
      return failed(error.what(), false);
    } catch (const std::system_error& error) {
      if (base::lacks_room(error.code().value())) {
        auto later = no_room(request.key, error.what(), error.code().value());
        later.unsure = may_run;
        return later;
      }
      if (may_run) return LaunchLater{.why = error.what(), .unsure = true};
      return failed(error.what(), true);
    } catch (const std::exception& error) {
      if (may_run) return LaunchLater{.why = error.what(), .unsure = true};
      return failed(error.what(), true);
    }
  }
  std::optional<LaunchAnswer> withdraw(const LaunchRequest& request) override {
    const auto path = folder_of(request.key);
    try {
      if (!std::filesystem::exists(path)) return std::nullopt;
      const auto folder = open_folder(path);
      const auto lock = try_lock(folder.get());
      const auto status = read_status(folder.get());
      if (status.running || (status.started && lock)) return found(request.key, folder.get(), *status.started);
      if (lock || (status.failed && status.ended)) return std::nullopt;
      return LaunchLater{.why = "an earlier launch of it is still under way", .unsure = true};
    } catch (const std::exception& error) {
      return LaunchLater{.why = error.what(), .unsure = true};
    }
  }
  bool is_there(const core::AttemptKey& key) override {
    try {
      const auto path = folder_of(key);
      if (!std::filesystem::exists(path)) return false;
      const auto folder = open_folder(path);
      const auto lock = try_lock(folder.get());
      if (!lock) return true;
      const auto status = read_status(folder.get());
      if (!status.started || status.ended) return false;
      return !leftovers(*status.started, attempt_mark_in(folder.get())).empty();
    } catch (const std::exception&) {  // asked again
      return true;
    }
  }
  void adopt(const core::AttemptKey& key, const core::Attempt& attempt) override {
    std::filesystem::path path = attempt.handle;
    if (path.empty()) path = folder_of(key);
    std::set<core::RankNumber> told;
    for (core::RankNumber rank = 0; rank < attempt.ranks.size(); ++rank) {
      if (attempt.ranks[rank].state == core::RankState::kExited) told.insert(rank);
    }
    boost::asio::post(io_, [this, key, path, told] {
      try {
        keep_port(key, open_folder(path).get());
      } catch (const std::system_error&) {  // the follower finds out what is wrong
      }
      follow(key, path, told);
    });
  }
  void stop(const core::AttemptKey& key, const StopRequest& how) override {
    boost::asio::post(io_, [this, key, how] {
      try {
        if (!followers_.contains(key)) {
          const auto folder = open_folder(folder_of(key));
          const auto status = read_status(folder.get());
          // A lock that is held says that it is being started this very moment, by us or for a controller before us.
          if (status.ended || (!status.started && try_lock(folder.get()))) return;
        }
      } catch (const std::system_error& error) {
        if (error.code() == std::errc::no_such_file_or_directory) return;
      } catch (const std::runtime_error&) {  // the follower finds out
      }
      follow(key, folder_of(key), {}).stop(how.grace);
    });
  }
  Vouch vouch(const core::AttemptKey& key, core::RankNumber rank) override {
    try {
      const auto what = started(key);
      if (!what || rank >= what->ranks.size() || what->boot_id != base::boot_id()) return Vouch::kGone;
      const auto& process = what->ranks[rank];
      const auto now = base::read_stat(process.pid);
      if (!now || now->start_time != process.start_time || now->is_dead()) {
        // The agent may hold the end back until nothing of the ranks is left. The follower answers for an agent that
        // does nothing any more.
        const auto agent = agent_of(*what);
        return agent && !agent->is_stopped() ? Vouch::kEnded : Vouch::kGone;
      }
      return now->is_stopped() ? Vouch::kStopped : Vouch::kAlive;
    } catch (const std::system_error& error) {
      return error.code() == std::errc::no_such_file_or_directory ? Vouch::kGone : Vouch::kUnknown;
    } catch (const std::runtime_error&) {
      return Vouch::kUnknown;
    }
  }
  bool ask_stacks(const core::AttemptKey&, std::uint64_t) override { return true; }
  void task(const core::AttemptKey& key, core::RankNumber rank, const TaskReport& report) override {
    if (!has_ended(report)) return;
    const Exited exited{rank, report.exit, report.out_of_memory, report.ended_at.count(), report.error};
    boost::asio::post(io_, [this, key, exited] {
      const auto follower = followers_.find(key);
      if (follower != followers_.end()) follower->second->exited(exited);
    });
  }
  void was_deaf() override {
    // One is enough, however long its turn takes to come.
    if (told_deaf_.exchange(true)) return;
    boost::asio::post(io_, [this] {
      told_deaf_ = false;
      for (auto& [key, follower] : followers_) follower->was_deaf();
    });
  }

 private:
  void close() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
    for (auto& [key, follower] : followers_) follower->close();
    followers_.clear();
  }
  std::filesystem::path folder_of(const core::AttemptKey& key) const {
    return common::DataFolder(options_.root).attempt(key);
  }
  void step(std::string_view name) const {
    if (options_.on_step) options_.on_step(name);
  }
  /// `may_run`: what it throws leaves open whether the attempt's ranks run, or will. An earlier launch of it may be
  /// under way, also one by a controller before us.
  LaunchAnswer find_or_start(const LaunchRequest& request, bool& may_run) {
    const auto& key = request.key;
    const auto path = folder_of(key);
    std::filesystem::create_directories(path);
    const auto folder = open_folder(path);
    const auto deadline = Clock::now() + options_.launch_limit;
    for (const auto give_up = std::min(deadline, Clock::now() + kOthersPatience);;) {
      auto lock = try_lock(folder.get());
      const auto status = status_of(folder.get(), !lock, may_run);
      if (status.failed && (status.ended || lock)) {
        return core::AttemptLaunchFailed{key.number, status.failed->reason, status.failed->retryable};
      }
      if (status.running || (status.started && lock)) return found(key, folder.get(), *status.started);
      if (lock) {
        may_run = false;
        return start_ranks(request, folder.get(), std::move(*lock), deadline, may_run);
      }
      if (Clock::now() >= give_up) {
        return LaunchLater{
            .why = "another process keeps " + (path / kLockFile).string() + " locked, and has started nothing yet",
            .unsure = true};
      }
      std::this_thread::sleep_for(kLookAgain);
    }
  }
  /// A status file that makes no sense says nothing, but whoever starts the attempt still holds the lock.
  static Status status_of(int folder, bool is_held, bool& may_run) {
    try {
      return read_status(folder);
    } catch (const std::system_error&) {
      throw;
    } catch (const std::runtime_error&) {
      may_run = is_held;
      throw;
    }
  }
  LaunchAnswer start_ranks(const LaunchRequest& request, int folder, Fd lock, Clock::time_point deadline,
                           bool& may_run) {
    const auto& key = request.key;
    const auto path = folder_of(key);
    const auto program = check_launch(request);
    std::filesystem::create_directories(request.log_folder);
    const auto port = ports_.take(key);
    StartAnswer answer;
    try {
      const auto launch = launch_of(request, program, port, options_, own_machine());
      base::replace_file_at(folder, kLaunchFile, std::string(kLaunchFile) + ".tmp", to_text(launch));
      step("written");
      may_run = true;
      answer = start_agent(options_.agent_program, path, std::move(lock), deadline, [&] { step("spawned"); });
      step("answered");
    } catch (...) {
      if (!may_run) ports_.give_back(key);
      throw;
    }
    const auto status = status_of(folder, answer.kind == StartAnswer::Kind::kRunning, may_run);
    may_run = false;
    if (status.started && !status.failed) return found(key, folder, *status.started);
    ports_.give_back(key);
    if (status.failed) return core::AttemptLaunchFailed{key.number, status.failed->reason, status.failed->retryable};
    if (answer.no_room != 0) return no_room(key, answer.reason, answer.no_room);
    if (answer.kind == StartAnswer::Kind::kSilent) answer.reason += "; see " + (path / kAgentLog).string();
    return core::AttemptLaunchFailed{key.number, answer.reason, answer.retryable};
  }
  LaunchLater no_room(const core::AttemptKey& key, const std::string& why, int error) const {
    return {why + " (in " + folder_of(key).string() + ")", kTryAgainAfter, common::make_room(error)};
  }
  LaunchAnswer found(const core::AttemptKey& key, int folder, const Started& started) {
    keep_port(key, folder);
    core::AttemptLaunched launched{key.number, folder_of(key).string(), started.node, {}};
    for (const auto& rank : started.ranks) launched.pids.push_back(rank.pid);
    std::optional<std::string> mark;
    try {
      mark = attempt_mark_in(folder);
    } catch (const std::runtime_error&) {  // the follower asks again
    }
    boost::asio::post(io_, [this, key, started, mark] { follow(key, folder_of(key), {}).know(started, mark); });
    return launched;
  }
  void keep_port(const core::AttemptKey& key, int folder) {
    try {
      const auto launch = read_launch_in(folder);
      if (launch && launch->local) ports_.keep(key, launch->local->master_port);
    } catch (const std::runtime_error&) {  // a port less to avoid: taking one checks that nothing listens on it
    }
  }
  /// The started processes; read once, so that a disk which stands still later keeps nobody from being asked about.
  std::optional<Started> started(const core::AttemptKey& key) {
    {
      const std::lock_guard lock(started_mutex_);
      if (const auto known = started_.find(key); known != started_.end()) return known->second;
    }
    auto status = read_status(open_folder(folder_of(key)).get());
    if (status.started && !status.ended) {
      const std::lock_guard lock(started_mutex_);
      started_.emplace(key, *status.started);
    }
    return std::move(status.started);
  }
  /// In the executor's thread.
  Follower& follow(const core::AttemptKey& key, const std::filesystem::path& folder, std::set<core::RankNumber> told) {
    const auto existing = followers_.find(key);
    if (existing != followers_.end()) return *existing->second;
    const auto over = [this, key] {
      ports_.give_back(key);
      {
        const std::lock_guard lock(started_mutex_);
        started_.erase(key);
      }
      // Not while it is still calling.
      boost::asio::post(io_, [this, key] { followers_.erase(key); });
    };
    const auto tell = [this, key](core::EventBody fact) { sink_(key.job, std::move(fact)); };
    const auto follower =
        std::make_shared<Follower>(io_, disk_, key, folder, std::move(told), Follower::Listener{tell, over});
    followers_.emplace(key, follower);
    follower->begin(options_.look_every);
    return *follower;
  }

  const LocalOptions options_;
  mutable std::mutex machine_mutex_;
  OwnMachine machine_;
  PortPicker ports_{std::random_device{}()};
  FactSink sink_;
  std::function<void()> machine_sink_;
  std::atomic<bool> told_deaf_ = false;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::map<core::AttemptKey, std::shared_ptr<Follower>> followers_;  // the executor's thread alone
  std::mutex started_mutex_;
  std::map<core::AttemptKey, Started> started_;  // of attempts that somebody asked about and that are not over
  std::thread thread_;
  common::Errands disk_{true};  // of the followers; last: its thread uses the others
};

}  // namespace

std::unique_ptr<Executor> make_local_executor(LocalOptions options) {
  return std::make_unique<LocalExecutor>(std::move(options));
}

}  // namespace executors::local
