#include "controller/executors/slurm/launcher.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "controller/executors/slurm/poller.h"
#include "slurm/host_list.h"
#include "spec/variables.h"

namespace executors::on_slurm {
namespace {

constexpr const char* kIndexMark = "@MUSTER_INDEX@";

/// The common name of a sweep's jobs: "tune" for "tune-0007".
std::string without_index(const std::string& name) {
  const auto dash = name.rfind('-');
  const bool numbered = dash != std::string::npos && dash > 0 && dash + 1 < name.size() &&
                        name.find_first_not_of("0123456789", dash + 1) == std::string::npos;
  return numbered ? name.substr(0, dash) : name;
}

std::vector<std::string> hosts_of(const std::string& list) {
  const auto hosts = ::slurm::expand_hosts(list);
  const auto* names = std::get_if<std::vector<std::string>>(&hosts);
  return names == nullptr ? std::vector<std::string>{} : *names;
}

void put(::slurm::Options& options, const char* name, std::uint32_t value) {
  if (value > 0) options[name] = std::to_string(value);
}

::slurm::Options options_of(const LaunchRequest& request) {
  ::slurm::Options options;
  put(options, "nodes", request.nodes);
  put(options, "ntasks", request.nodes * request.ranks_per_node);
  put(options, "ntasks-per-node", request.ranks_per_node);
  put(options, "time", static_cast<std::uint32_t>(slurm_minutes(request.time_limit).count()));
  // An admin's `scontrol requeue` works with it. The second run is never the attempt's.
  options["requeue"] = std::nullopt;
  for (const auto& [name, value] : request.slurm.options) options[name] = value;
  auto exclude = hosts_of(request.slurm.option("exclude"));
  for (const auto& node : request.exclude_nodes) {
    if (std::ranges::find(exclude, node) == exclude.end()) exclude.push_back(node);
  }
  if (!exclude.empty()) options["exclude"] = ::slurm::compress_hosts(exclude);
  return options;
}

/// A slurmctld that dies before it has written down a start makes the start again when it is back, and calls it the
/// first run. The run that makes the folder is the attempt's. A run that finds the folder leaves.
std::string claim_line(const std::filesystem::path& folder) {
  return "muster_begun=" + ::slurm::bash_quote((folder / "begun").string()) +
         "${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}\n"
         "if ! mkdir \"$muster_begun\" 2> /dev/null && [ -d \"$muster_begun\" ]; then\n"
         "  echo \"" +
         std::string(kBegunAlready) +
         ": nothing to do\" >&2\n"
         "  exit 0\n"
         "fi";
}

/// [Note: libraries of the job's environment]
std::vector<std::string> with_libraries(const AgentProgram& agent, std::vector<std::string> arguments) {
  std::string start = std::string("exec env -u LD_LIBRARY_PATH -u LD_PRELOAD \"") + spec::variable::kRankLibraryPath +
                      "=${LD_LIBRARY_PATH-}\" \"" + spec::variable::kRankPreload + "=${LD_PRELOAD-}\" ";
  if (!agent.libraries.empty()) start += ::slurm::bash_quote("LD_LIBRARY_PATH=" + agent.libraries) + " ";
  std::vector<std::string> words = {"/bin/sh", "-c", start + "\"$@\"", "muster-agent", agent.path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

/// Makes the folders and files of an element, which cost nothing while it waited.
std::string prepare_line(const AgentProgram& agent, const std::string& set_file) {
  std::string line;
  for (const auto& word : with_libraries(agent, {"--prepare", "--set", set_file, "--index"})) {
    line += ::slurm::bash_quote(word) + " ";
  }
  return line + "\"$SLURM_ARRAY_TASK_ID\" || exit 1";
}

::slurm::BatchScript plan(const LaunchRequest& request, const std::string& comment,
                          const std::filesystem::path& folder) {
  ::slurm::BatchScript script;
  script.name = request.job_name;
  script.comment = comment;
  script.chdir = folder.string();
  script.output = {(folder / "slurm.log").string(), true};
  script.options = options_of(request);
  script.steps.leave_when_restarted = true;
  // The time limit began to run then. Slurm 22.05 has no variable for that moment.
  script.steps.setup = {claim_line(folder), std::string("export ") + spec::variable::kStartedAt + "=$(date +%s)"};
  script.steps.setup.insert(script.steps.setup.end(), request.slurm.setup.begin(), request.slurm.setup.end());
  script.steps.teardown = request.slurm.teardown;
  if (!request.slurm.health_check.empty()) script.steps.health_check = {telling_check(request.slurm.health_check)};
  script.launch.srun_args = request.slurm.srun_args;
  script.launch.in_script = request.batch.has_value();
  // A rank that has saved and left must not cut short a rank that is still saving. musterd itself ends a gang.
  script.launch.kill_on_bad_exit = false;
  return script;
}

}  // namespace

std::chrono::minutes slurm_minutes(core::Millis limit) {
  if (limit <= core::Millis(0)) return std::chrono::minutes(0);
  return std::chrono::ceil<std::chrono::minutes>(limit);
}

::slurm::BatchScript plan_script(const LaunchRequest& request, const AgentProgram& agent, const std::string& comment) {
  auto script = plan(request, comment, request.attempt_folder);
  script.launch.command = with_libraries(agent, {"--attempt", request.attempt_folder});
  return script;
}

::slurm::BatchScript plan_array(const std::vector<LaunchRequest>& requests, const AgentProgram& agent,
                                const std::string& comment, const std::string& set_file) {
  const auto folder = std::filesystem::path(set_file).parent_path();
  auto script = plan(requests.front(), comment, folder);
  // The elements of an array may differ in these.
  script.name = without_index(requests.front().job_name);
  script.output = {(folder / ("slurm-" + std::string(kIndexMark) + ".log")).string(), true};
  script.index_mark = kIndexMark;
  script.launch.command = with_libraries(agent, {"--set", set_file, "--index", kIndexMark});
  // Before the setup lines: the working folder may be one that is made now.
  script.steps.setup.insert(script.steps.setup.begin() + 1, prepare_line(agent, set_file));
  ::slurm::ArrayTasks tasks;
  for (std::uint32_t i = 0; i < requests.size(); ++i) tasks.tasks.push_back(i);
  tasks.parallelism = requests.front().slurm.array_parallelism;
  script.array = std::move(tasks);
  return script;
}

bool same_shape(const LaunchRequest& a, const LaunchRequest& b) {
  return a.nodes == b.nodes && a.ranks_per_node == b.ranks_per_node && a.time_limit == b.time_limit &&
         a.stop_grace == b.stop_grace && a.is_command == b.is_command && a.batch == b.batch &&
         a.exclude_nodes == b.exclude_nodes && a.slurm == b.slurm && a.base_env == b.base_env;
}

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostElements = 1000;  // in one array

constexpr core::Millis kAskAgain{10'000};

bool is_refused(const Submitter::Outcome& outcome, ::slurm::Refusal kind) {
  const auto* refused = std::get_if<::slurm::Refused>(&outcome);
  return refused != nullptr && refused->kind == kind;
}

SubmissionRecord new_record(const LaunchRequest& request, const std::string& comment) {
  SubmissionRecord record;
  record.comment = comment;
  record.ranks_per_node = request.ranks_of_node();
  record.stop_grace = request.stop_grace;
  record.time_limit = request.time_limit;
  record.exclude = request.slurm.option("exclude");
  record.left_out = request.exclude_nodes;
  return record;
}

std::vector<LaunchRequest> members_of(const std::vector<LaunchRequest>& requests,
                                      const std::vector<std::size_t>& indices) {
  std::vector<LaunchRequest> members;
  for (const auto i : indices) members.push_back(requests[i]);
  return members;
}

}  // namespace

Launcher::Launcher(::slurm::Scheduler& scheduler, common::Clock& clock, const SlurmOptions& options,
                   AttemptTable& table, ListJobs list)
    : scheduler_(scheduler),
      clock_(clock),
      options_(options),
      table_(table),
      task_{options.agent_program.string(), options.agent_libraries},
      submitter_(scheduler, clock, std::move(list)),
      sets_(options.root / "slurm") {}

SubmissionRecord Launcher::record_to_follow(const core::AttemptKey& key, const std::filesystem::path& attempt_folder) {
  if (auto record = sets_.record_of(key, attempt_folder)) return *std::move(record);
  SubmissionRecord none;
  none.comment = comment_of(options_.store_name, {key});
  return none;
}

bool Launcher::may_be_submitted(const LaunchRequest& request) {
  try {
    return on_slurm::may_be_submitted(request.attempt_folder) ||
           sets_.record_of(request.key, request.attempt_folder).has_value();
  } catch (const std::exception&) {
    return true;
  }
}

std::vector<LaunchAnswer> Launcher::launch_all(const std::vector<LaunchRequest>& requests) {
  table_.locked([&](AttemptTable::State& state) {
    for (const auto& request : requests) state.launching.insert(request.key);
    ++state.begun;
  });
  Answers answers;
  try {
    answers = hand_over(requests);
  } catch (const std::exception& error) {
    answers.clear();
    for (const auto& request : requests) {
      answers.emplace_back(LaunchLater{.why = error.what(), .unsure = may_be_submitted(request)});
    }
  }
  for (std::size_t i = 0; i < requests.size(); ++i) take(requests[i], answers[i]);
  return answers;
}

std::optional<LaunchAnswer> Launcher::withdraw(const LaunchRequest& request) {
  std::optional<LaunchAnswer> answer;
  try {
    answer = look(request);
  } catch (const std::exception& error) {
    answer = LaunchLater{.why = error.what(), .unsure = true};
  }
  if (answer) {
    take(request, *answer);
  } else {
    table_.locked([&](AttemptTable::State& state) { state.later.erase(request.key); });
  }
  return answer;
}

// The table has what became of a launch before anybody hears of the answer.
void Launcher::take(const LaunchRequest& request, LaunchAnswer& answer) {
  try {
    if (auto* launched = std::get_if<core::AttemptLaunched>(&answer)) {
      const auto record = record_to_follow(request.key, request.attempt_folder);
      launched->time_limit = record.time_limit;
      table_.follow({request.key, request.ranks(), request.ranks_of_node(), false, false, request.stop_grace},
                    launched->scheduler_job, request.attempt_folder, record, clock_.wall(), clock_.monotonic());
    }
  } catch (const std::exception& error) {
    answer = LaunchLater{.why = error.what(), .unsure = true};
  }
  table_.locked([&](AttemptTable::State& state) {
    state.launching.erase(request.key);
    if (const auto* later = std::get_if<LaunchLater>(&answer)) {
      state.later[request.key] = later->why;
    } else {
      state.later.erase(request.key);
    }
  });
  table_.wake();
}

Launcher::Answers Launcher::hand_over(const std::vector<LaunchRequest>& requests) {
  Answers answers(requests.size(), LaunchLater{"not tried"});
  std::vector<std::size_t> of_sets;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto record = sets_.prepared(requests[i].key, requests[i].attempt_folder);
    if (record ? record->set_folder.empty() : requests.size() == 1) {
      answers[i] = answer(requests[i].key, submit({requests[i]}), std::nullopt);
    } else {
      of_sets.push_back(i);
    }
  }
  if (of_sets.empty()) return answers;
  std::lock_guard lock(sets_mutex_);
  const auto fresh = look_for_sets(requests, of_sets, answers);
  if (fresh.empty()) return answers;
  if (!config()) {  // the largest size of an array is not known
    for (const auto i : fresh) answers[i] = LaunchLater{"Slurm's configuration can't be asked for yet"};
    return answers;
  }
  std::optional<LaunchLater> full;
  for (const auto& set : fresh_sets(requests, fresh)) submit_next(requests, set, full, answers);
  return answers;
}

// Answers the requests whose array Slurm has, or may have. Returns the others. An array that Slurm surely does not have
// is forgotten: it was prepared for other elements, or for other wishes.
std::vector<std::size_t> Launcher::look_for_sets(const std::vector<LaunchRequest>& requests,
                                                 const std::vector<std::size_t>& indices, Answers& answers) {
  std::vector<std::size_t> fresh;
  std::map<std::string, Known> known;  // by folder
  for (const auto i : indices) {
    const auto& request = requests[i];
    const auto record = sets_.prepared(request.key, request.attempt_folder);
    if (record && !known.contains(record->set_folder)) {
      known.emplace(record->set_folder, look_for_set(record->set_folder));
    }
    if (auto found = record ? earlier(request, *record, known.at(record->set_folder)) : std::nullopt) {
      answers[i] = *std::move(found);
      continue;
    }
    forget_record(request.attempt_folder);
    fresh.push_back(i);
  }
  for (const auto& [folder, set] : known) {
    if (!set.outcome) sets_.forget(folder);
  }
  return fresh;
}

// The answer about an element of an array that was prepared earlier; nullopt: Slurm surely does not have the element.
std::optional<LaunchAnswer> Launcher::earlier(const LaunchRequest& request, const SubmissionRecord& record,
                                              const Known& known) {
  const bool is_member = record.index < known.members.size() && known.members[record.index] == request.key;
  if (known.outcome && is_member) return answer(request.key, *known.outcome, record.index);
  // Slurm does not list the array, but the element ran. The status files of its ranks tell the rest.
  if (any_rank_status(request.attempt_folder)) return answer(request.key, ::slurm::JobId{0, {}}, std::nullopt);
  return std::nullopt;
}

std::optional<LaunchAnswer> Launcher::look(const LaunchRequest& request) {
  const auto record = sets_.prepared(request.key, request.attempt_folder);
  if (!record) return std::nullopt;
  if (record->set_folder.empty()) {
    const auto outcome = submitter_.look(request.attempt_folder);
    return outcome ? std::optional(answer(request.key, *outcome, std::nullopt)) : std::nullopt;
  }
  std::lock_guard lock(sets_mutex_);
  return earlier(request, *record, look_for_set(record->set_folder));
}

// An array that breaks a limit on the number of queued jobs is halved, because a part may fit. Once not even one job
// fits, nothing more is submitted.
void Launcher::submit_next(const std::vector<LaunchRequest>& requests, const Set& set, std::optional<LaunchLater>& full,
                           Answers& answers) {
  if (full) {
    for (const auto i : set) answers[i] = *full;
    return;
  }
  const bool alone = set.size() == 1;
  const auto outcome = submit(members_of(requests, set));
  // Every element of an array counts as a queued job.
  const bool too_many = is_refused(outcome, ::slurm::Refusal::kTooMany);
  if (too_many && !alone) {
    const auto middle = set.begin() + static_cast<std::ptrdiff_t>(set.size() / 2);
    submit_next(requests, {set.begin(), middle}, full, answers);
    submit_next(requests, {middle, set.end()}, full, answers);
    return;
  }
  for (std::uint32_t i = 0; i < set.size(); ++i) {
    answers[set[i]] = answer(requests[set[i]].key, outcome, alone ? std::nullopt : std::optional(i));
  }
  if (too_many) full = std::get<LaunchLater>(answers[set.front()]);
}

// A node that was lost lately is better than no node.
Submitter::Outcome Launcher::submit(std::vector<LaunchRequest> members) {
  auto outcome = submit_once(members);
  if (!is_refused(outcome, ::slurm::Refusal::kUsers) || members.front().exclude_nodes.empty()) return outcome;
  spdlog::warn("job {} attempt {}: Slurm refuses it without the nodes lost lately; trying with them",
               members.front().key.job, members.front().key.number);
  for (auto& member : members) member.exclude_nodes.clear();
  return submit_once(members);
}

Submitter::Outcome Launcher::submit_once(const std::vector<LaunchRequest>& members) {
  const auto script = script_of(members);
  if (const auto problems = ::slurm::problems(script); !problems.empty()) return ::slurm::Refused{problems.front()};
  const auto& first = members.front();
  if (members.size() == 1) {
    write_launch_file(first, forwards_signals());
    return submitter_.submit(first.attempt_folder, new_record(first, comment_of(options_.store_name, {first.key})),
                             ::slurm::render(script), first.base_env);
  }
  const auto folder = sets_.folder_of(first.key);
  sets_.write(members, forwards_signals());
  auto outcome = submitter_.submit(folder, new_record(first, comment_of(options_.store_name, {first.key, true})),
                                   ::slurm::render(script), first.base_env);
  if (!std::holds_alternative<::slurm::Refused>(outcome)) return outcome;
  // Smaller arrays and single jobs need not look for this array.
  sets_.forget(folder);
  if (!is_refused(outcome, ::slurm::Refusal::kArray)) return outcome;
  forget_config();
  if (largest_array() >= members.size()) return outcome;
  return LaunchLater{"Slurm takes smaller arrays than it used to"};
}

::slurm::BatchScript Launcher::script_of(const std::vector<LaunchRequest>& members) const {
  const auto& first = members.front();
  if (members.size() == 1) return plan_script(first, task_, comment_of(options_.store_name, {first.key}));
  return plan_array(members, task_, comment_of(options_.store_name, {first.key, true}),
                    (sets_.folder_of(first.key) / kSetFile).string());
}

std::vector<std::string> Launcher::scripts(const std::vector<LaunchRequest>& requests) {
  std::vector<std::string> texts;
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const bool alike = std::ranges::any_of(shown, [&](std::size_t other) {
      return requests[other].sweep.empty() && same_shape(requests[other], requests[i]);
    });
    if (!requests[i].sweep.empty() || !alike) shown.push_back(i);
  }
  for (const auto& set : fresh_sets(requests, shown)) {
    texts.push_back(::slurm::render(script_of(members_of(requests, set))));
  }
  return texts;
}

std::vector<Launcher::Set> Launcher::fresh_sets(const std::vector<LaunchRequest>& requests,
                                                const std::vector<std::size_t>& fresh) {
  std::vector<Set> sets;
  const auto most = largest_array();
  for (const auto i : fresh) {
    const auto fits = std::ranges::find_if(
        sets, [&](const Set& set) { return set.size() < most && same_shape(requests[set.front()], requests[i]); });
    if (fits != sets.end()) {
      fits->push_back(i);
    } else {
      sets.push_back({i});
    }
  }
  return sets;
}

LaunchAnswer Launcher::answer(const core::AttemptKey& key, const Submitter::Outcome& outcome,
                              std::optional<std::uint32_t> index) {
  if (const auto* id = std::get_if<::slurm::JobId>(&outcome)) {
    const core::SchedulerJob job{id->job, index};
    return core::AttemptLaunched{key.number, "Slurm job " + core::to_string(job), "", {}, true, core::Millis(-1), job};
  }
  if (const auto* later = std::get_if<LaunchLater>(&outcome)) return *later;
  const auto& [why, kind] = std::get<::slurm::Refused>(outcome);
  // Slurm may take a job again that it took once: its partition may be closed, or accounting may be away. A job that
  // has trained for days does not fail for that.
  if (!::slurm::is_final(kind) || key.number > 1) return LaunchLater{"Slurm refuses it for now: " + why, kAskAgain};
  return core::AttemptLaunchFailed{key.number, "Slurm refuses it: " + why, false};
}

std::uint64_t Launcher::largest_array() {
  const auto known = config();
  if (!known) return kMostElements;
  // Task ids are below MaxArraySize.
  return known->max_array_size > 1 ? std::min<std::uint64_t>(known->max_array_size - 1, kMostElements) : 1;
}

std::optional<::slurm::ClusterConfig> Launcher::config() {
  std::lock_guard lock(config_mutex_);
  if (!config_) {
    if (const auto answer = scheduler_.config()) config_ = *answer;
  }
  return config_;
}

}  // namespace executors::on_slurm
