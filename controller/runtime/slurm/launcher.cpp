#include "runtime/slurm/launcher.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <numeric>
#include <ranges>
#include <sstream>

#include "runtime/durable_file.h"
#include "runtime/scheduler_handle.h"
#include "runtime/slurm/script_plan.h"
#include "runtime/slurm/task_files.h"

namespace runtime::on_slurm {
namespace {

constexpr std::size_t kMostScript = 1 << 20;
constexpr std::uint64_t kMostElements = 1000;  // of one array
/// Of a limited sweep so many arrays are remembered.
constexpr std::size_t kLongestChain = 64;
// Of a set's folder.
constexpr const char* kScript = "script.sh";
constexpr const char* kScriptAnywhere = "script-anywhere.sh";  // on nodes lost lately, too
constexpr const char* kComment = "comment";

constexpr core::Millis kAskAgain{10'000};

/// Refusals that pass by themselves: a limit on jobs in the queue, a partition that is closed for a while, a controller
/// that is overwhelmed.
bool may_pass(const std::string& why) {
  // One sentence for every limit of accounting: the size of the job, its time, how many there are. A line before it
  // names the limit: QOSMaxSubmitJobPerUserLimit, AssocGrpSubmitJobsLimit, QOSMaxWallDurationPerJobLimit.
  if (const auto policy = why.find("Job violates accounting/QOS policy"); policy != std::string::npos) {
    const auto limit = why.substr(0, policy);
    return limit.find("SubmitJob") != std::string::npos ||
           (limit.find("QOS") == std::string::npos && limit.find("Assoc") == std::string::npos);
  }
  const auto says = [&](const char* words) { return why.find(words) != std::string::npos; };
  return std::ranges::any_of(std::array{"temporarily", "MaxSubmit", "Maximum job count", "try again", "in standby mode",
                                        "(inactive or drain)"},
                             says);
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

core::AttemptLaunched launched(const core::AttemptKey& key, const std::string& job) {
  core::AttemptLaunched fact;
  fact.attempt = key.number;
  fact.handle = scheduler_handle(job);
  fact.queued = true;
  return fact;
}

}  // namespace

Launcher::Launcher(::slurm::Scheduler& scheduler, Clock& clock, const SlurmOptions& options)
    : scheduler_(scheduler), clock_(clock), options_(options), submitter_(scheduler, clock, options.user) {}

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
  std::vector<LaunchAnswer> answers(requests.size(), LaunchLater{"not tried"});
  std::map<std::string, std::vector<std::size_t>> known;  // set folder -> requests of a set made before
  std::vector<std::size_t> fresh;
  std::map<std::size_t, std::uint32_t> index_of;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto record = read_record(requests[i].attempt_folder);
    if (record && !record->set_folder.empty() && is_complete(record->set_folder)) {
      known[record->set_folder].push_back(i);
      index_of[i] = record->index;
    } else if ((requests.size() == 1 && !has_chain(requests[i])) || (record && record->set_folder.empty())) {
      answers[i] = submit_alone(requests[i]);
    } else {
      fresh.push_back(i);
    }
  }
  for (const auto& [folder, members] : known) {
    const auto outcome = submit_set(folder);
    for (const auto i : members) answers[i] = answer(requests[i].key, outcome, index_of[i]);
  }
  if (fresh.empty()) return answers;
  if (!config()) {  // how large an array may be is not known, and a small one would hold back those behind it
    for (const auto i : fresh) answers[i] = LaunchLater{"Slurm's configuration can't be asked for yet"};
    return answers;
  }
  const auto& any = requests[fresh.front()];
  std::unique_lock lock(chain_mutex_, std::defer_lock);
  if (has_chain(any)) lock.lock();
  auto chain = has_chain(any) ? chain_of(any.sweep) : Chain{};
  for (const auto& set : fresh_sets(requests, fresh)) {
    if (goes_alone(requests, set.members)) {
      answers[set.members.front()] = submit_alone(requests[set.members.front()]);
      continue;
    }
    const auto outcome = submit_next(requests, set, chain);
    for (std::uint32_t i = 0; i < set.members.size(); ++i) {
      answers[set.members[i]] = answer(requests[set.members[i]].key, outcome, i);
    }
  }
  return answers;
}

// Arrays of a limited sweep come one after the other, or each would have the whole parallelism.
Submitter::Outcome Launcher::submit_next(const std::vector<LaunchRequest>& requests, const Set& set, Chain& chain) {
  const auto& first = requests[set.members.front()];
  if (chain.broken) return Submitter::Later{"waits for the sweep's earlier array"};
  const auto members = members_of(requests, set.members);
  const auto script = script_of_set(members, chain.after);
  if (const auto problems = ::slurm::problems(script); !problems.empty()) return ::slurm::Refused{problems.front()};
  prepare_set(members, set.folder, script, chain.after);
  if (has_chain(first)) note_set(first.sweep, set.folder);
  auto outcome = submit_set(set.folder);
  if (!has_chain(first)) return outcome;
  if (const auto* id = std::get_if<::slurm::JobId>(&outcome)) chain.after = after(*id);
  const auto* refused = std::get_if<::slurm::Refused>(&outcome);
  chain.broken = std::holds_alternative<Submitter::Later>(outcome) || (refused != nullptr && may_pass(refused->why));
  return outcome;
}

std::filesystem::path Launcher::chain_file(const std::string& sweep) const {
  return options_.root / "slurm" / ("sweep-" + sweep);
}

// The newest array that Slurm has taken. One of which that is not known yet keeps those behind it back, and so does one
// that it has not taken, as long as somebody waits for that.
Launcher::Chain Launcher::chain_of(const std::string& sweep) {
  auto names = lines_of(read_small_file(chain_file(sweep)));
  for (const auto& name : std::views::reverse(names)) {
    const auto folder = options_.root / "slurm" / name;
    const auto outcome = submitter_.look(folder);
    if (!outcome && is_given_up(folder)) continue;
    if (!outcome) return {"", true};
    if (const auto* id = std::get_if<::slurm::JobId>(&*outcome)) return {after(*id), false};
    return {"", true};
  }
  return {};
}

bool Launcher::is_given_up(const std::filesystem::path& set_folder) const {
  if (!is_complete(set_folder)) return true;
  const auto members = read_set_file(set_folder / kSetFile);
  return is_over_ && std::ranges::all_of(members, is_over_);
}

// Before it is asked for: whoever comes next finds it, whatever happens in between.
void Launcher::note_set(const std::string& sweep, const std::filesystem::path& set_folder) {
  auto names = lines_of(read_small_file(chain_file(sweep)));
  const auto name = set_folder.filename().string();
  if (std::ranges::find(names, name) != names.end()) return;
  names.push_back(name);
  if (names.size() > kLongestChain) names.erase(names.begin());
  std::string text;
  for (const auto& each : names) text += each + "\n";
  write_file_durably(chain_file(sweep), text);
}

LaunchAnswer Launcher::submit_alone(const LaunchRequest& request) {
  write_launch_file(request, forwards_signals());
  return answer(request.key, try_submit(request), std::nullopt);
}

Submitter::Outcome Launcher::try_submit(const LaunchRequest& request) {
  auto record = record_of(request, comment_of(request.key));
  const auto script = script_of(request);
  if (const auto problems = ::slurm::problems(script); !problems.empty()) {
    return ::slurm::Refused{problems.front()};
  }
  auto outcome = submitter_.submit(request.attempt_folder, record, ::slurm::render(script));
  // Better a node that was lost lately than none at all.
  if (std::holds_alternative<::slurm::Refused>(outcome) && !request.exclude_nodes.empty()) {
    auto everywhere = request;
    everywhere.exclude_nodes.clear();
    record.left_out.clear();
    spdlog::warn("job {} attempt {}: Slurm refuses it without the nodes lost lately; trying with them", request.key.job,
                 request.key.number);
    outcome = submitter_.submit(request.attempt_folder, record, ::slurm::render(script_of(everywhere)));
  }
  return outcome;
}

::slurm::BatchScript Launcher::script_of(const LaunchRequest& request) const {
  return plan_script(request, options_.task_program.string(), comment_of(request.key));
}

::slurm::BatchScript Launcher::script_of_set(const std::vector<LaunchRequest>& members,
                                             const std::string& after) const {
  const auto& first = members.front().key;
  auto script = plan_array(members, options_.task_program.string(), comment_of_set(first),
                           (set_folder(first) / kSetFile).string());
  script.terms.dependency = after;
  script.terms.kill_on_invalid_dep = false;
  return script;
}

std::vector<std::string> Launcher::scripts(const std::vector<LaunchRequest>& requests) {
  std::vector<std::string> texts;
  std::vector<std::size_t> all(requests.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (const auto& set : fresh_sets(requests, all)) {
    const auto members = members_of(requests, set.members);
    texts.push_back(
        ::slurm::render(goes_alone(requests, set.members) ? script_of(members.front()) : script_of_set(members, "")));
  }
  return texts;
}

std::vector<Launcher::Set> Launcher::fresh_sets(const std::vector<LaunchRequest>& requests,
                                                const std::vector<std::size_t>& fresh) {
  std::vector<Set> sets;
  const auto most = largest_array();
  for (const auto i : fresh) {
    const auto fits = std::ranges::find_if(sets, [&](const Set& set) {
      return set.members.size() < most && same_shape(requests[set.members.front()], requests[i]);
    });
    if (fits != sets.end()) {
      fits->members.push_back(i);
    } else {
      sets.push_back({set_folder(requests[i].key), {i}});
    }
  }
  return sets;
}

// Everything on disk before sbatch: the elements' own launch files and records, who is which, and the script. The
// comment comes last: without it the set is none, and nothing of it was ever submitted.
void Launcher::prepare_set(std::vector<LaunchRequest> members, const std::filesystem::path& folder,
                           const ::slurm::BatchScript& script, const std::string& after) {
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
  write_file_durably(folder / kScript, ::slurm::render(script));
  if (!members.front().exclude_nodes.empty()) {
    members.front().exclude_nodes.clear();
    write_file_durably(folder / kScriptAnywhere, ::slurm::render(script_of_set(members, after)));
  }
  write_file_durably(folder / kComment, comment);
}

bool Launcher::is_complete(const std::filesystem::path& set_folder) {
  return !read_small_file(set_folder / kComment).empty();
}

Submitter::Outcome Launcher::submit_set(const std::filesystem::path& folder) {
  SubmissionRecord record;
  record.comment = read_small_file(folder / kComment);
  const auto script = read_small_file(folder / kScript, kMostScript);
  if (script.empty()) {
    return ::slurm::Refused{folder.string() + " is damaged: its script is gone; submit the jobs again"};
  }
  auto outcome = submitter_.submit(folder, record, script);
  if (!std::holds_alternative<::slurm::Refused>(outcome)) return outcome;
  const auto anywhere = read_small_file(folder / kScriptAnywhere, kMostScript);
  if (anywhere.empty()) return outcome;
  spdlog::warn("{}: Slurm refuses it without the nodes lost lately; trying with them", folder.string());
  return submitter_.submit(folder, record, anywhere);
}

LaunchAnswer Launcher::answer(const core::AttemptKey& key, const Submitter::Outcome& outcome,
                              std::optional<std::uint32_t> index) {
  if (const auto* id = std::get_if<::slurm::JobId>(&outcome)) {
    return launched(key, ::slurm::to_string(::slurm::JobId{id->job, index}));
  }
  if (const auto* later = std::get_if<Submitter::Later>(&outcome)) return LaunchLater{later->why};
  const auto& why = std::get<::slurm::Refused>(outcome).why;
  // What Slurm has taken once it may take again, when its partition is open and its accounting there: a job that has
  // trained for days does not fail for that.
  if (may_pass(why) || key.number > 1) return LaunchLater{"Slurm refuses it for now: " + why, kAskAgain};
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

std::optional<::slurm::ClusterConfig> Launcher::config() {
  std::lock_guard lock(config_mutex_);
  if (!config_) {
    if (const auto answer = scheduler_.config()) config_ = *answer;
  }
  return config_;
}

}  // namespace runtime::on_slurm
