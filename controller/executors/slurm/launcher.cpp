#include "executors/slurm/launcher.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <ranges>
#include <sstream>

#include "base/durable_file.h"
#include "executors/scheduler_handle.h"
#include "executors/slurm/script_plan.h"
#include "executors/slurm/task_files.h"

namespace runtime::on_slurm {
namespace {

constexpr std::uint64_t kMostElements = 1000;  // of one array
/// Of a limited sweep so many arrays are remembered.
constexpr std::size_t kLongestChain = 64;

constexpr core::Millis kAskAgain{10'000};
constexpr const char* kWaitsForEarlier = "waits for the sweep's earlier array";

bool says(const std::string& why, const char* words) {
  return why.find(words) != std::string::npos;
}

/// A limit on how many jobs may be in the queue: every element of an array counts.
bool is_too_many(const ::slurm::Refused* refused) {
  return refused != nullptr && refused->kind == ::slurm::Refusal::kTooMany;
}

std::string key_text(const core::AttemptKey& key) {
  return std::to_string(key.job) + "." + std::to_string(key.number);
}

/// First attempts of a sweep with a limit: its arrays wait for one another.
bool has_chain(const LaunchRequest& request) {
  return request.sweep_parallel > 0 && !request.sweep.empty() && request.key.number == 1;
}

std::string after(const ::slurm::JobId& id) {
  return "afterany:" + std::to_string(id.job);
}

/// Others wait for their turn in a chain even where they are the only one.
bool goes_alone(const std::vector<LaunchRequest>& requests, const std::vector<std::size_t>& indices) {
  return indices.size() == 1 && !has_chain(requests[indices.front()]);
}

SubmissionRecord record_of(const LaunchRequest& request, const std::string& comment) {
  SubmissionRecord record;
  record.comment = comment;
  record.ranks_per_node = request.ranks_per_node;
  record.stop_grace = request.stop_grace;
  record.time_limit = request.time_limit;
  record.exclude = request.slurm.exclude;
  record.left_out = request.exclude_nodes;
  return record;
}

std::vector<LaunchRequest> members_of(const std::vector<LaunchRequest>& requests,
                                      const std::vector<std::size_t>& indices) {
  std::vector<LaunchRequest> members;
  for (const auto i : indices) members.push_back(requests[i]);
  return members;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::optional<core::AttemptKey> parse_key(std::string_view text) {
  const char* end = text.data() + text.size();
  core::AttemptKey key;
  const auto job = std::from_chars(text.data(), end, key.job);
  if (job.ec != std::errc() || job.ptr == end || *job.ptr != '.') return std::nullopt;
  const auto number = std::from_chars(job.ptr + 1, end, key.number);
  if (number.ec != std::errc() || number.ptr != end) return std::nullopt;
  return key;
}

/// Of an element whose array Slurm does not list: its ranks' status files tell the rest.
bool ran_and_is_forgotten(const std::optional<SubmissionRecord>& record, const std::filesystem::path& attempt_folder) {
  return record && any_rank_status(attempt_folder);
}

core::AttemptLaunched launched(const core::AttemptKey& key, const std::string& job) {
  core::AttemptLaunched fact;
  fact.attempt = key.number;
  fact.handle = scheduler_handle(job);
  fact.queued = true;
  return fact;
}

}  // namespace

Launcher::Launcher(::slurm::Scheduler& scheduler, Clock& clock, const SlurmOptions& options, ListJobs list)
    : scheduler_(scheduler), clock_(clock), options_(options), submitter_(scheduler, clock, std::move(list)) {}

std::string Launcher::comment_of(const core::AttemptKey& key) const {
  return "muster:" + options_.store_name + ":" + key_text(key);
}

std::optional<core::AttemptKey> Launcher::key_of(const std::string& comment) const {
  const std::string prefix = "muster:" + options_.store_name + ":";
  return comment.starts_with(prefix) ? parse_key(std::string_view(comment).substr(prefix.size())) : std::nullopt;
}

std::string Launcher::comment_of_set(const core::AttemptKey& first) const {
  return "muster:" + options_.store_name + ":set." + key_text(first);
}

std::filesystem::path Launcher::set_folder(const core::AttemptKey& first) const {
  return options_.root / "slurm" / ("set-" + key_text(first));
}

std::optional<std::filesystem::path> Launcher::set_of(const std::string& comment) const {
  const std::string prefix = "muster:" + options_.store_name + ":set.";
  if (!comment.starts_with(prefix)) return std::nullopt;
  const auto first = parse_key(std::string_view(comment).substr(prefix.size()));
  return first ? std::optional(set_folder(*first)) : std::nullopt;
}

std::vector<LaunchAnswer> Launcher::launch_all(const std::vector<LaunchRequest>& requests) {
  Answers answers(requests.size(), LaunchLater{"not tried"});
  std::vector<std::size_t> of_sets;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto record = read_record(requests[i].attempt_folder);
    if (record ? record->set_folder.empty() : requests.size() == 1 && !has_chain(requests[i])) {
      answers[i] = answer(requests[i].key, submit({requests[i]}, true, ""), std::nullopt);
    } else {
      of_sets.push_back(i);
    }
  }
  if (of_sets.empty()) return answers;
  std::lock_guard lock(sets_mutex_);
  const auto fresh = look_for_sets(requests, of_sets, answers);
  if (fresh.empty()) return answers;
  if (!config()) {  // how large an array may be is not known, and a small one would hold back those behind it
    for (const auto i : fresh) answers[i] = LaunchLater{"Slurm's configuration can't be asked for yet"};
    return answers;
  }
  const auto& any = requests[fresh.front()];
  auto round = has_chain(any) ? round_of(any.sweep) : Round{};
  for (const auto& set : fresh_sets(requests, fresh)) submit_next(requests, set, round, answers);
  return answers;
}

// Answers those whose array Slurm has, or may have. The others belong to none: theirs was made for elements that need
// not be the same any more, and for what they wanted then.
std::vector<std::size_t> Launcher::look_for_sets(const std::vector<LaunchRequest>& requests,
                                                 const std::vector<std::size_t>& indices, Answers& answers) {
  std::vector<std::size_t> fresh;
  std::map<std::string, Known> known;  // by folder
  for (const auto i : indices) {
    const auto& request = requests[i];
    const auto record = read_record(request.attempt_folder);
    const auto folder = record ? record->set_folder : std::string();
    if (!folder.empty() && !known.contains(folder)) known.emplace(folder, look_for_set(folder));
    if (!folder.empty() && known.at(folder).has(request.key, record->index)) {
      answers[i] = answer(request.key, *known.at(folder).outcome, record->index);
    } else if (ran_and_is_forgotten(record, request.attempt_folder)) {
      answers[i] = answer(request.key, ::slurm::JobId{0, {}}, std::nullopt);
    } else {
      forget_record(request.attempt_folder);
      fresh.push_back(i);
    }
  }
  return fresh;
}

Launcher::Known Launcher::look_for_set(const std::filesystem::path& folder) {
  return {submitter_.look(folder), read_set_file(folder / kSetFile)};
}

bool Launcher::Known::has(const core::AttemptKey& key, std::uint32_t index) const {
  return outcome && index < members.size() && members[index] == key;
}

std::optional<LaunchAnswer> Launcher::withdraw(const core::AttemptKey& key, const std::filesystem::path& folder) {
  const auto record = read_record(folder);
  if (!record) return std::nullopt;
  if (record->set_folder.empty()) {
    const auto outcome = submitter_.look(folder);
    return outcome ? std::optional(answer(key, *outcome, std::nullopt)) : std::nullopt;
  }
  std::lock_guard lock(sets_mutex_);
  const auto known = look_for_set(record->set_folder);
  if (known.has(key, record->index)) return answer(key, *known.outcome, record->index);
  if (ran_and_is_forgotten(record, folder)) return answer(key, ::slurm::JobId{0, {}}, std::nullopt);
  return std::nullopt;
}

// Arrays of a limited sweep come one after the other, or each would have the whole parallelism. One that is too large
// for a limit on what is in the queue is halved: parts of it may fit.
void Launcher::submit_next(const std::vector<LaunchRequest>& requests, const Set& set, Round& round, Answers& answers) {
  const auto& first = requests[set.front()];
  if (!round.wait_for.empty()) {
    for (const auto i : set) answers[i] = LaunchLater{round.wait_for, round.pause};
    return;
  }
  const bool alone = goes_alone(requests, set);
  const auto outcome = submit(members_of(requests, set), alone, round.after);
  const auto* refused = std::get_if<::slurm::Refused>(&outcome);
  if (is_too_many(refused) && set.size() > 1) {
    const auto middle = set.begin() + static_cast<std::ptrdiff_t>(set.size() / 2);
    submit_next(requests, {set.begin(), middle}, round, answers);
    submit_next(requests, {middle, set.end()}, round, answers);
    return;
  }
  for (std::uint32_t i = 0; i < set.size(); ++i) {
    answers[set[i]] = answer(requests[set[i]].key, outcome, alone ? std::nullopt : std::optional(i));
  }
  if (is_too_many(refused)) {
    const auto& later = std::get<LaunchLater>(answers[set.front()]);
    round.wait_for = later.why, round.pause = later.pause;
  } else if (has_chain(first)) {
    if (const auto* id = std::get_if<::slurm::JobId>(&outcome)) round.after = after(*id);
    const bool refused_for_now = refused != nullptr && refused->kind != ::slurm::Refusal::kUsers;
    if (std::holds_alternative<Submitter::Later>(outcome) || refused_for_now) round.wait_for = kWaitsForEarlier;
  }
}

// Better a node that was lost lately than none at all.
Submitter::Outcome Launcher::submit(std::vector<LaunchRequest> members, bool alone, const std::string& after) {
  const auto once = [&] { return alone ? submit_alone(members.front()) : submit_set(members, after); };
  auto outcome = once();
  const auto* refused = std::get_if<::slurm::Refused>(&outcome);
  const bool of_its_wishes = refused != nullptr && refused->kind == ::slurm::Refusal::kUsers;
  if (!of_its_wishes || members.front().exclude_nodes.empty()) return outcome;
  spdlog::warn("job {} attempt {}: Slurm refuses it without the nodes lost lately; trying with them",
               members.front().key.job, members.front().key.number);
  for (auto& member : members) member.exclude_nodes.clear();
  return once();
}

Submitter::Outcome Launcher::submit_alone(const LaunchRequest& request) {
  const auto script = script_of(request);
  if (const auto problems = ::slurm::problems(script); !problems.empty()) return ::slurm::Refused{problems.front()};
  write_launch_file(request, forwards_signals());
  return submitter_.submit(request.attempt_folder, record_of(request, comment_of(request.key)), ::slurm::render(script),
                           request.base_env);
}

Submitter::Outcome Launcher::submit_set(const std::vector<LaunchRequest>& members, const std::string& after) {
  const auto& first = members.front();
  const auto script = script_of_set(members, after);
  if (const auto problems = ::slurm::problems(script); !problems.empty()) return ::slurm::Refused{problems.front()};
  prepare_set(members);
  const auto folder = set_folder(first.key);
  if (has_chain(first)) note_set(first.sweep, folder);
  SubmissionRecord record;
  record.comment = comment_of_set(first.key);
  auto outcome = submitter_.submit(folder, record, ::slurm::render(script), first.base_env);
  const auto* refused = std::get_if<::slurm::Refused>(&outcome);
  if (refused == nullptr) return outcome;
  // What is smaller, or alone, need not look for it.
  for (const auto& member : members) forget_record(member.attempt_folder);
  if (!says(refused->why, "Invalid job array specification")) return outcome;
  forget_config();
  if (largest_array() >= members.size()) return outcome;
  return Submitter::Later{"Slurm takes smaller arrays than it used to", false};
}

std::filesystem::path Launcher::chain_file(const std::string& sweep) const {
  return options_.root / "slurm" / ("sweep-" + sweep);
}

// After the newest array that Slurm has taken; one of which that is not known yet keeps those behind it back.
Launcher::Round Launcher::round_of(const std::string& sweep) {
  const auto names = lines_of(read_small_file(chain_file(sweep)));
  for (const auto& name : std::views::reverse(names)) {
    const auto outcome = submitter_.look(options_.root / "slurm" / name);
    if (!outcome) continue;
    const auto* id = std::get_if<::slurm::JobId>(&*outcome);
    return id != nullptr ? Round{after(*id)} : Round{{}, kWaitsForEarlier};
  }
  return {};
}

// Before it is asked for: whoever comes next finds it, whatever happens in between.
void Launcher::note_set(const std::string& sweep, const std::filesystem::path& set_folder) {
  auto names = lines_of(read_small_file(chain_file(sweep)));
  const auto name = set_folder.filename().string();
  if (!names.empty() && names.back() == name) return;
  std::erase(names, name);
  names.push_back(name);
  if (names.size() > kLongestChain) names.erase(names.begin());
  std::string text;
  for (const auto& each : names) text += each + "\n";
  write_file_durably(chain_file(sweep), text);
}

TaskProgram Launcher::task() const {
  return {options_.task_program.string(), options_.task_libraries};
}

::slurm::BatchScript Launcher::script_of(const LaunchRequest& request) const {
  return plan_script(request, task(), comment_of(request.key));
}

::slurm::BatchScript Launcher::script_of_set(const std::vector<LaunchRequest>& members,
                                             const std::string& after) const {
  const auto& first = members.front().key;
  auto script = plan_array(members, task(), comment_of_set(first), (set_folder(first) / kSetFile).string());
  script.terms.dependency = after;
  script.terms.kill_on_invalid_dep = false;
  return script;
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
    const auto members = members_of(requests, set);
    texts.push_back(
        ::slurm::render(goes_alone(requests, set) ? script_of(members.front()) : script_of_set(members, "")));
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

// Everything on disk before sbatch: the elements' own launch files and records, and who is which.
void Launcher::prepare_set(const std::vector<LaunchRequest>& members) {
  const auto folder = set_folder(members.front().key);
  std::vector<std::string> folders;
  for (const auto& member : members) folders.push_back(member.attempt_folder);
  write_set_file(folder / kSetFile, folders);
  const auto comment = comment_of_set(members.front().key);
  const bool forward = forwards_signals();
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    write_launch_file(members[i], forward);
    auto record = record_of(members[i], comment);
    record.set_folder = folder.string();
    record.index = i;
    write_record(members[i].attempt_folder, record);
  }
}

LaunchAnswer Launcher::answer(const core::AttemptKey& key, const Submitter::Outcome& outcome,
                              std::optional<std::uint32_t> index) {
  if (const auto* id = std::get_if<::slurm::JobId>(&outcome)) {
    return launched(key, ::slurm::to_string(::slurm::JobId{id->job, index}));
  }
  if (const auto* later = std::get_if<Submitter::Later>(&outcome)) {
    return LaunchLater{.why = later->why, .pause = later->pause, .unsure = later->unsure};
  }
  const auto& [why, kind] = std::get<::slurm::Refused>(outcome);
  // What Slurm has taken once it may take again, when its partition is open and its accounting there: a job that has
  // trained for days does not fail for that.
  if (kind != ::slurm::Refusal::kUsers || key.number > 1)
    return LaunchLater{"Slurm refuses it for now: " + why, kAskAgain};
  return core::AttemptLaunchFailed{key.number, "Slurm refuses it: " + why, false};
}

bool Launcher::forwards_signals() {
  const auto known = config();
  if (!known) return false;
  const auto found = known->fields.find("ProctrackType");
  return found != known->fields.end() && found->second == "proctrack/pgid";
}

std::uint64_t Launcher::largest_array() {
  const auto known = config();
  if (!known) return kMostElements;
  // Task ids are below MaxArraySize.
  return known->max_array_size > 1 ? std::min<std::uint64_t>(known->max_array_size - 1, kMostElements) : 1;
}

void Launcher::forget_config() {
  std::lock_guard lock(config_mutex_);
  config_.reset();
}

std::optional<::slurm::ClusterConfig> Launcher::config() {
  std::lock_guard lock(config_mutex_);
  if (!config_) {
    if (const auto answer = scheduler_.config()) config_ = *answer;
  }
  return config_;
}

}  // namespace runtime::on_slurm
