#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "slurm/scheduler.h"

namespace executors::on_slurm::testing {

/// The death of the controller: caught by tests alone.
struct Crash {};

/// A Slurm in memory that takes scripts, lists jobs and can be away; it outlives the controllers that crash on it.
/// Nothing starts or ends by itself. Where an executor's threads use it, tests call cancelled_ids(), times_listed() and
/// set_lists() alone meanwhile.
class FakeScheduler : public ::slurm::Scheduler {
 public:
  /// kFails: sbatch takes nothing, kTakesAndFails: it takes the job, and both end with the words of `failure`.
  enum class Submits {
    kTakes,
    kRefuses,
    kIsAway,
    kTakesSilently,
    kLosesIt,
    kFails,
    kTakesAndFails,
    kCrashesBefore,
    kCrashesAfter
  };

  Submits submits = Submits::kTakes;
  std::string refusal = "Invalid partition name specified";
  std::string failure = "Batch job submission failed: I/O error writing script/environment to file";
  std::set<::slurm::JobId> omitted;                                           // by squeue alone
  std::optional<std::map<::slurm::JobId, ::slurm::ListedJob>> listed_before;  // what squeue answers, if anything
  bool refuses_excludes = false;
  bool lists = true;
  bool is_operator = true;
  std::uint64_t max_array_size = 1001;
  bool keeps_array_size = false;             // what is larger is refused
  std::optional<std::size_t> most_in_queue;  // a limit of accounting, where each element counts
  std::string slurmd_port = "6818";
  std::string proctrack = "proctrack/linuxproc";
  std::optional<std::chrono::milliseconds> ahead;  // of this machine's clock; nothing: it does not say
  std::uint64_t next_id = 1;
  std::map<::slurm::JobId, ::slurm::ListedJob> jobs;
  std::vector<std::string> scripts;  // every one that was taken
  std::vector<::slurm::JobId> cancelled;
  std::vector<std::pair<::slurm::JobId, std::vector<std::string>>> excluded;  // what it was asked for
  std::function<void()> during_find;                                          // called once, by the next find()
  int calls_to_submit = 0, calls_to_list = 0;
  std::size_t inherited = 0;                       // descriptors, by the newest sbatch
  std::map<std::string, std::string> environment;  // of the newest sbatch
  std::set<std::string> users_listed;
  ::slurm::Answer<::slurm::StartEstimate> estimate = ::slurm::StartEstimate{};
  std::optional<std::vector<::slurm::PastRun>> past;  // none: no accounting
  bool accounting_answers = true;
  std::vector<::slurm::Node> all_nodes;
  std::vector<std::vector<std::uint64_t>> calls_to_history;
  std::vector<std::uint64_t> times_found;  // the numbers that were asked for one by one

  /// The value of an #SBATCH option; empty if it is not there.
  static std::string option(const std::string& script, const std::string& name) {
    std::istringstream lines(script);
    const auto start = "#SBATCH --" + name + "=";
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(start)) return line.substr(start.size());
    }
    return {};
  }
  int count(const std::string& comment) const {
    return static_cast<int>(
        std::ranges::count_if(jobs, [&](const auto& entry) { return entry.second.comment == comment; }));
  }

  std::vector<::slurm::JobId> cancelled_ids() {
    std::lock_guard lock(mutex_);
    return cancelled;
  }
  std::size_t times_excluded() {
    std::lock_guard lock(mutex_);
    return excluded.size();
  }
  int times_listed() {
    std::lock_guard lock(mutex_);
    return calls_to_list;
  }
  void drain(const std::string& name, const std::string& reason) {
    std::lock_guard lock(mutex_);
    auto& node = all_nodes.emplace_back();
    node.name = name;
    node.states = {"IDLE", "DRAIN"};
    node.reason = reason;
  }
  /// Sets whether squeue goes on saying what it says now.
  void keep_listing(bool on) {
    std::lock_guard lock(mutex_);
    listed_before = on ? std::optional(jobs) : std::nullopt;
  }
  void omit(const ::slurm::JobId& id, bool on = true) {
    std::lock_guard lock(mutex_);
    on ? static_cast<void>(omitted.insert(id)) : static_cast<void>(omitted.erase(id));
  }
  std::size_t times_asked_for(std::uint64_t number) {
    std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count(times_found, number));
  }
  template <typename Do>
  void with(const ::slurm::JobId& id, Do&& action) {
    change(id, action);
  }
  void set_lists(bool does) {
    std::lock_guard lock(mutex_);
    lists = does;
  }

  ::slurm::SubmitAnswer submit(const std::string& script, const std::vector<std::string>&,
                               const std::vector<int>& keep_fds,
                               const std::map<std::string, std::string>& given) override {
    ++calls_to_submit;
    environment = given;
    inherited = keep_fds.size();
    if (submits == Submits::kCrashesBefore) throw Crash{};
    if (submits == Submits::kIsAway) return ::slurm::Unreachable{"Unable to contact slurm controller"};
    if (submits == Submits::kRefuses) return ::slurm::Refused{refusal, ::slurm::understand_refusal(refusal)};
    if (submits == Submits::kFails) return ::slurm::Unsure{failure, true};
    if (submits == Submits::kLosesIt) return ::slurm::Unsure{"time limit"};
    if (refuses_excludes && !option(script, "exclude").empty()) {
      return ::slurm::Refused{"Requested node configuration is not available"};
    }
    const auto elements = elements_of(script);
    if (keeps_array_size && elements >= max_array_size)
      return ::slurm::Refused{"Invalid job array specification", ::slurm::Refusal::kArray};
    if (most_in_queue && jobs.size() + elements > *most_in_queue) {
      const std::string why = "AssocGrpSubmitJobsLimit; Job violates accounting/QOS policy (job submit limit, ...)";
      return ::slurm::Refused{why, ::slurm::understand_refusal(why)};
    }
    const auto id = take(script);
    if (submits == Submits::kCrashesAfter) throw Crash{};
    if (submits == Submits::kTakesAndFails) return ::slurm::Unsure{failure, true};
    if (submits == Submits::kTakesSilently) return ::slurm::Unsure{"Socket timed out"};
    return ::slurm::JobId{id, {}};
  }
  ::slurm::Answer<std::vector<::slurm::ListedJob>> list(const std::string& user) override {
    std::lock_guard lock(mutex_);
    ++calls_to_list;
    users_listed.insert(user);
    if (!lists) return ::slurm::Unreachable{"squeue: Unable to contact slurm controller"};
    std::vector<::slurm::ListedJob> all;
    for (const auto& [id, job] : listed_before.value_or(jobs)) {
      if (omitted.contains(id)) continue;
      all.push_back(job);
      all.back().work_folder.clear();
    }
    return all;
  }
  ::slurm::Answer<std::vector<::slurm::ListedJob>> find(std::uint64_t number) override {
    if (const auto meanwhile = std::exchange(during_find, nullptr)) meanwhile();
    std::lock_guard lock(mutex_);
    times_found.push_back(number);
    if (!lists) return ::slurm::Unreachable{"scontrol: Unable to contact slurm controller"};
    std::vector<::slurm::ListedJob> found;
    for (const auto& [id, job] : jobs) {
      if (id.job == number) found.push_back(job);
    }
    return found;
  }
  ::slurm::Answer<::slurm::Done> cancel(const std::vector<::slurm::JobId>& ids) override {
    std::lock_guard lock(mutex_);
    cancelled.insert(cancelled.end(), ids.begin(), ids.end());
    for (const auto& id : ids) {
      const auto found = jobs.find(id);
      if (found == jobs.end() || ::slurm::classify(found->second.state.state) == ::slurm::JobPhase::kEnded) continue;
      found->second.state.state = ::slurm::JobState::kCancelled;
    }
    return ::slurm::Done{};
  }
  ::slurm::Answer<::slurm::ClusterConfig> config() override {
    std::lock_guard lock(mutex_);
    if (!lists) return ::slurm::Unreachable{"scontrol: Unable to contact slurm controller"};
    ::slurm::ClusterConfig config;
    config.max_array_size = max_array_size;
    config.fields["ProctrackType"] = proctrack;
    config.fields["SlurmdPort"] = slurmd_port;
    if (ahead) config.now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now() + *ahead);
    return config;
  }

  ::slurm::Answer<::slurm::StartEstimate> test_only(const std::string&) override { return estimate; }
  ::slurm::Answer<::slurm::Done> hold(const ::slurm::JobId& id) override {
    if (!lists) return ::slurm::Unreachable{"scontrol: Unable to contact slurm controller"};
    return change(id, [](auto& job) { job.priority = 0, job.reason = "JobHeldUser"; });
  }
  ::slurm::Answer<::slurm::Done> release(const ::slurm::JobId& id) override {
    return change(id, [](auto& job) { job.priority = kPriority, job.reason = "None"; });
  }
  ::slurm::Answer<::slurm::Done> update_time_limit(const ::slurm::JobId& id, std::chrono::minutes limit) override {
    std::lock_guard lock(mutex_);
    if (!lists) return ::slurm::Unreachable{"scontrol: Unable to contact slurm controller"};
    const auto found = jobs.find(id);
    if (found == jobs.end()) return ::slurm::Refused{"Invalid job id specified"};
    auto& job = found->second;
    // Only an operator may give a job that runs more time.
    const bool more = limit.count() == 0 || (job.time_limit && limit > *job.time_limit);
    if (more && !is_operator && job.state.state == ::slurm::JobState::kRunning) {
      return ::slurm::Refused{"Access/permission denied", ::slurm::Refusal::kForbidden};
    }
    job.time_limit = limit.count() > 0 ? std::optional<std::chrono::seconds>(limit) : std::nullopt;
    return ::slurm::Done{};
  }
  ::slurm::Answer<::slurm::Done> exclude(const ::slurm::JobId& id, const std::vector<std::string>& nodes) override {
    std::lock_guard lock(mutex_);
    if (!lists) return ::slurm::Unreachable{"scontrol: Unable to contact slurm controller"};
    const bool there = std::ranges::any_of(jobs, [&](const auto& entry) { return entry.first.job == id.job; });
    if (!there) return ::slurm::Refused{"Invalid job id specified"};
    excluded.emplace_back(id, nodes);
    return ::slurm::Done{};
  }
  ::slurm::Answer<std::vector<::slurm::PastRun>> history(const std::vector<std::uint64_t>& ids) override {
    calls_to_history.push_back(ids);
    if (!accounting_answers) return ::slurm::Unreachable{"sacct: Unable to contact slurmdbd"};
    if (!past) return ::slurm::Refused{"Slurm accounting storage is disabled"};
    return *past;
  }
  ::slurm::Answer<std::vector<::slurm::Partition>> partitions() override { return std::vector<::slurm::Partition>{}; }
  ::slurm::Answer<std::vector<::slurm::Node>> nodes() override {
    std::lock_guard lock(mutex_);
    return all_nodes;
  }

  // Slurm does these things by itself, or a person has it do them, when a test says so.
  void requeue(const ::slurm::JobId& id) {
    change(id, [](auto& job) {
      job.state.state = ::slurm::JobState::kPending;
      job.node_list.clear();
      ++job.restarts;
    });
  }
  void start(const ::slurm::JobId& id) {
    change(id, [](auto& job) {
      job.state.state = ::slurm::JobState::kRunning;
      job.node_list = "node1";
    });
  }
  void finish(int code) {
    std::lock_guard lock(mutex_);
    for (auto& [id, job] : jobs) {
      if (job.state.state != ::slurm::JobState::kRunning) continue;
      job.state.state = code == 0 ? ::slurm::JobState::kCompleted : ::slurm::JobState::kFailed;
      job.exit = ::slurm::ExitStatus{code, 0};
    }
  }

  /// slurmctld has lost the job, and gives its number to another's.
  void give_away(const ::slurm::JobId& id) {
    change(id, [](auto& job) { job.comment = "a stranger's"; });
  }

  static std::size_t elements_of(const std::string& script) {
    const auto array = option(script, "array");
    return array.empty() ? 1 : std::stoul(array.substr(array.find_first_of("-,") + 1)) + 1;
  }

  /// Does the work of an sbatch that was under way when its caller died.
  std::uint64_t take(const std::string& script) {
    std::lock_guard lock(mutex_);
    return add(script, next_id++);
  }
  /// Takes the script as the job of this number.
  void take(const std::string& script, std::uint64_t id) {
    std::lock_guard lock(mutex_);
    add(script, id);
  }

 private:
  std::uint64_t add(const std::string& script, std::uint64_t id) {
    scripts.push_back(script);
    const auto array = option(script, "array");
    for (std::uint32_t i = 0; i < elements_of(script); ++i) {
      ::slurm::ListedJob job;
      job.id = array.empty() ? ::slurm::JobId{id, {}} : ::slurm::JobId{id, i};
      job.state.state = ::slurm::JobState::kPending;
      job.comment = option(script, "comment");
      job.work_folder = option(script, "chdir");
      job.priority = kPriority;
      if (const auto minutes = option(script, "time"); !minutes.empty()) {
        job.time_limit = std::chrono::minutes(std::stoul(minutes));
      }
      jobs[job.id] = job;
    }
    return id;
  }

  static constexpr std::uint64_t kPriority = 4'294'901'757;

  template <typename Do>
  ::slurm::Answer<::slurm::Done> change(const ::slurm::JobId& id, Do&& action) {
    std::lock_guard lock(mutex_);
    const auto found = jobs.find(id);
    if (found == jobs.end()) return ::slurm::Refused{"Invalid job id specified"};
    action(found->second);
    return ::slurm::Done{};
  }

  std::mutex mutex_;
};

}  // namespace executors::on_slurm::testing
