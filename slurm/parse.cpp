#include "slurm/parse.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/numbers.h"
#include "base/words.h"
#include "slurm/pending_reason.h"

namespace slurm {
namespace {

using Fields = std::map<std::string, std::string>;

std::string field(const Fields& fields, const std::string& name) {
  const auto found = fields.find(name);
  return found == fields.end() || found->second == "(null)" ? "" : found->second;
}

template <class T>
T number_field(const Fields& fields, const std::string& name, T otherwise = 0) {
  return base::whole_number<T>(field(fields, name)).value_or(otherwise);
}

/// A list in which ALL, N/A and NONE mean no restriction.
std::vector<std::string> list_field(const Fields& fields, const std::string& name) {
  const auto text = field(fields, name);
  if (text == "ALL" || text == "N/A" || text == "NONE") return {};
  return base::split(text, ',');
}

bool is_key(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == ':' || c == '/'; });
}

/// The position of the next " Key=", or the end of the line.
std::size_t next_key(std::string_view line, std::size_t from) {
  for (auto space = line.find(' ', from); space != std::string_view::npos; space = line.find(' ', space + 1)) {
    const auto equals = line.find_first_of("= ", space + 1);
    if (equals != std::string_view::npos && line[equals] == '=' && is_key(line.substr(space + 1, equals - space - 1))) {
      return space;
    }
  }
  return line.size();
}

Partition partition_of(const Fields& fields) {
  Partition p;
  p.name = field(fields, "PartitionName");
  p.state = field(fields, "State");
  p.is_default = field(fields, "Default") == "YES";
  p.node_list = field(fields, "Nodes");
  p.total_nodes = number_field<std::uint32_t>(fields, "TotalNodes");
  p.total_cpus = number_field<std::uint32_t>(fields, "TotalCPUs");
  p.max_time = parse_duration(field(fields, "MaxTime"));
  p.default_time = parse_duration(field(fields, "DefaultTime"));
  p.max_nodes = base::whole_number<std::uint32_t>(field(fields, "MaxNodes"));
  p.allow_groups = list_field(fields, "AllowGroups");
  p.allow_accounts = list_field(fields, "AllowAccounts");
  p.allow_qos = list_field(fields, "AllowQos");
  p.priority_tier = number_field<std::uint32_t>(fields, "PriorityTier");
  p.preempt_mode = field(fields, "PreemptMode");
  p.grace = std::chrono::seconds(number_field<std::int64_t>(fields, "GraceTime"));
  return p;
}

Node node_of(const Fields& fields) {
  Node n;
  n.name = field(fields, "NodeName");
  n.address = field(fields, "NodeAddr");
  for (auto state : base::split(field(fields, "State"), '+')) {
    while (!state.empty() && std::string_view("*~#!%$@^-").find(state.back()) != std::string_view::npos) {
      if (state.back() == '*') n.responds = false;
      state.pop_back();
    }
    if (state == "NOT_RESPONDING") n.responds = false;
    if (!state.empty()) n.states.push_back(std::move(state));
  }
  n.reason = field(fields, "Reason");
  n.cpus = number_field<std::uint32_t>(fields, "CPUTot");
  n.cpus_used = number_field<std::uint32_t>(fields, "CPUAlloc");
  n.memory_mib = number_field<std::uint64_t>(fields, "RealMemory");
  n.memory_used_mib = number_field<std::uint64_t>(fields, "AllocMem");
  n.gres = field(fields, "Gres");
  n.tres_used = field(fields, "AllocTRES");
  n.partitions = list_field(fields, "Partitions");
  n.fields = fields;
  return n;
}

ListedJob shown_job(const Fields& fields) {
  ListedJob job;
  job.state = parse_job_state(field(fields, "JobState"));
  job.reason = field(fields, "Reason");
  job.restarts = number_field<std::uint32_t>(fields, "Restarts");
  job.submitted = parse_time(field(fields, "SubmitTime"));
  job.started = parse_time(field(fields, "StartTime"));
  job.node_list = field(fields, "NodeList");
  job.comment = field(fields, "Comment");
  job.work_folder = field(fields, "WorkDir");
  return job;
}

template <std::size_t N>
bool has_any(const std::vector<std::string>& states, const std::array<std::string_view, N>& wanted) {
  return std::ranges::any_of(states,
                             [&](const auto& state) { return std::ranges::find(wanted, state) != wanted.end(); });
}

/// Parses one line of `scontrol -o`: "Key=value Key=value". The value of `last_key` extends to the end of the line.
Fields parse_pairs(std::string_view line, std::string_view last_key = "Reason") {
  Fields fields;
  line = base::trimmed(line);
  while (!line.empty()) {
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) break;
    const std::string key(base::trimmed(line.substr(0, equals)));
    const auto end = key == last_key ? line.size() : next_key(line, equals + 1);
    fields.try_emplace(key, base::trimmed(line.substr(equals + 1, end - equals - 1)));
    line = base::trimmed(line.substr(end));
  }
  return fields;
}

/// Parses one object a line. Each line must have a name.
template <class T>
Parsed<std::vector<T>> parse_lines(std::string_view text, const std::string& name_key, T (*make)(const Fields&)) {
  std::vector<T> all;
  for (const auto& line : base::split(text, '\n')) {
    if (base::trimmed(line).empty()) continue;
    const auto fields = parse_pairs(line);
    if (!fields.contains(name_key)) return "a line without " + name_key + ": " + line.substr(0, 200);
    all.push_back(make(fields));
  }
  return all;
}

constexpr std::array<std::string_view, 14> kSqueueFields = {
    "JobArrayID", "State",       "Reason",    "NodeList",  "RestartCnt", "SubmitTime",   "StartTime",
    "EndTime",    "PreemptTime", "TimeLimit", "exit_code", "Dependency", "PriorityLong", "Comment"};
constexpr std::array<std::string_view, 8> kSacctFields = {"JobID", "State", "ExitCode", "Submit",
                                                          "Start", "End",   "NodeList", "Comment"};

/// Reads rows of fields. The separator ends each field, and a line break ends each row.
class Rows {
 public:
  Rows(std::string_view text, std::string_view separator) : text_(text), separator_(separator) {}

  bool at_end() const { return text_.empty(); }
  int row() const { return row_; }

  /// Reads the next row's fields. Returns a problem, or an empty text.
  template <std::size_t N>
  std::string read(std::array<std::string, N>& fields) {
    ++row_;
    for (std::size_t i = 0; i < N; ++i) {
      const auto end = text_.find(separator_);
      if (end == std::string_view::npos) return problem("ends after " + std::to_string(i) + " fields");
      const auto field = text_.substr(0, end);
      fields[i] = field == "(null)" ? std::string() : std::string(field);
      text_.remove_prefix(end + separator_.size());
    }
    if (!text_.starts_with('\n')) return problem("does not end after " + std::to_string(N) + " fields");
    text_.remove_prefix(1);
    return {};
  }

  std::string problem(const std::string& what) const { return "row " + std::to_string(row_) + " " + what; }

 private:
  std::string_view text_;
  std::string_view separator_;
  int row_ = 0;
};

/// The exit status as wait() gives it.
std::optional<ExitStatus> wait_status(const std::string& text) {
  const auto status = base::whole_number<std::uint32_t>(text);
  if (!status) return std::nullopt;
  return ExitStatus{static_cast<int>((*status >> 8) & 0xff), static_cast<int>(*status & 0x7f)};
}

/// sacct's "7:0".
std::optional<ExitStatus> exit_pair(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto code = base::whole_number<int>(std::string_view(text).substr(0, colon));
  const auto signal = base::whole_number<int>(std::string_view(text).substr(colon + 1));
  if (!code || !signal) return std::nullopt;
  return ExitStatus{*code, *signal};
}

ListedJob listed_job(const std::array<std::string, kSqueueFields.size()>& f, const JobId& id) {
  ListedJob job;
  job.id = id;
  job.state = parse_job_state(f[1]);
  job.reason = f[2];
  job.node_list = f[3];
  job.restarts = base::whole_number<std::uint32_t>(f[4]).value_or(0);
  job.submitted = parse_time(f[5]);
  job.started = parse_time(f[6]);
  job.ends = parse_time(f[7]);
  job.preempted = parse_time(f[8]);
  job.time_limit = parse_duration(f[9]);
  const auto phase = classify(job.state.state);
  const auto exit = wait_status(f[10]);
  const bool waits_again = phase == JobPhase::kQueued && job.restarts > 0 && exit != ExitStatus{};
  if (phase == JobPhase::kEnded || waits_again) job.exit = exit;
  job.dependency = f[11];
  job.priority = base::whole_number<std::uint64_t>(f[12]).value_or(0);
  job.comment = f[13];
  return job;
}

}  // namespace

// One line stands for all elements of an array that have not started yet.
Parsed<std::vector<ListedJob>> parse_shown_jobs(std::string_view text) {
  std::vector<ListedJob> jobs;
  for (const auto& line : base::split(text, '\n')) {
    if (base::trimmed(line).empty()) continue;
    const auto fields = parse_pairs(line, {});
    const auto array = field(fields, "ArrayJobId"), tasks = field(fields, "ArrayTaskId");
    const bool many = tasks.find_first_not_of("0123456789") != std::string::npos;
    const auto number = field(fields, "JobId");
    const auto id = parse_listed_id(tasks.empty() ? number : array + "_" + (many ? "[" + tasks + "]" : tasks));
    if (!id || field(fields, "JobState").empty()) return "a line without job id or state: " + line.substr(0, 200);
    const auto job = shown_job(fields);
    if (const auto* one = std::get_if<JobId>(&*id)) {
      jobs.push_back(job);
      jobs.back().id = *one;
      continue;
    }
    const auto& rest = std::get<ArrayRemainder>(*id);
    if (rest.cut_short) return "a list of array elements that is cut short: " + tasks;
    for (const auto task : rest.tasks) {
      jobs.push_back(job);
      jobs.back().id = {rest.job, task};
    }
  }
  return jobs;
}

Parsed<std::vector<Partition>> parse_partitions(std::string_view text) {
  return parse_lines(text, "PartitionName", partition_of);
}

Parsed<std::vector<Node>> parse_nodes(std::string_view text) {
  return parse_lines(text, "NodeName", node_of);
}

Parsed<ClusterConfig> parse_config(std::string_view text) {
  Fields fields;
  for (const auto& line : base::split(text, '\n')) {
    const auto equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    fields.try_emplace(std::string(base::trimmed(line.substr(0, equals))), base::trimmed(line.substr(equals + 3)));
  }
  if (!fields.contains("ClusterName")) return std::string("no ClusterName in it");
  ClusterConfig config;
  config.max_array_size = number_field<std::uint64_t>(fields, "MaxArraySize", config.max_array_size);
  constexpr std::string_view kNow = "Configuration data as of ";
  if (text.starts_with(kNow))
    config.now = parse_time(base::trimmed(text.substr(kNow.size(), text.find('\n') - kNow.size())));
  config.fields = std::move(fields);
  return config;
}

std::string Node::field(const std::string& key) const {
  return slurm::field(fields, key);
}
std::string ClusterConfig::field(const std::string& key) const {
  return slurm::field(fields, key);
}

bool Node::usable() const {
  constexpr std::array<std::string_view, 12> kBad = {"DOWN",   "DRAIN",   "DRAINED",       "DRAINING",
                                                     "FAIL",   "FAILING", "ERROR",         "UNKNOWN",
                                                     "FUTURE", "INVAL",   "REBOOT_ISSUED", "NOT_RESPONDING"};
  return responds && !states.empty() && !has_any(states, kBad);
}

bool Node::is_down() const {
  return !responds || has_any(states, std::to_array<std::string_view>({"DOWN", "FAIL"}));
}

bool Node::should_answer() const {
  return responds && !has_any(states, std::to_array<std::string_view>({"DOWN", "FAIL", "POWERED_DOWN", "POWERING_DOWN",
                                                                       "REBOOT_ISSUED", "UNKNOWN"}));
}

bool Node::failed_a_launch() const {
  const auto words = plain_words(reason);
  return has_any(states, std::to_array<std::string_view>({"DRAIN", "DRAINED"})) &&
         (words.find("prolog") != std::string::npos || words.find("launch") != std::string::npos ||
          words.starts_with("batch job complete failure"));
}

std::string Node::why() const {
  return reason.substr(0, reason.find(" ["));
}

// "Prolog error [root@1795314284]"
std::optional<Time> Node::why_since() const {
  const auto at = reason.rfind('@');
  if (at == std::string::npos || !reason.ends_with(']')) return std::nullopt;
  const auto seconds =
      base::whole_number<std::int64_t>(std::string_view(reason).substr(at + 1, reason.size() - at - 2));
  return seconds ? std::optional(Time(std::chrono::seconds(*seconds))) : std::nullopt;
}

std::optional<StartEstimate> parse_start(std::string_view text) {
  for (const auto& line : base::split(text, '\n')) {
    const auto at = line.find(" to start at ");
    if (at == std::string::npos || line.find("Job ") > at) continue;
    StartEstimate estimate;
    const auto words = base::split(std::string_view(line).substr(at + 13), ' ');
    if (!words.empty()) estimate.start = parse_time(words.front());
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == "using") estimate.cpus = base::whole_number<std::uint32_t>(words[i + 1]).value_or(0);
      if (words[i] == "nodes") estimate.node_list = words[i + 1];
      if (words[i] == "partition") estimate.partition = words[i + 1];
    }
    return estimate;
  }
  return std::nullopt;
}

std::optional<std::chrono::seconds> parse_duration(std::string_view text) {
  std::chrono::seconds days{0};
  if (const auto dash = text.find('-'); dash != std::string_view::npos) {
    const auto count = base::whole_number<std::uint32_t>(text.substr(0, dash));
    if (!count) return std::nullopt;
    days = std::chrono::seconds(std::int64_t{*count} * 86400);
    text = text.substr(dash + 1);
  }
  std::int64_t seconds = 0;
  const auto parts = base::split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  for (const auto& part : parts) {
    const auto number = base::whole_number<std::uint32_t>(part);
    if (!number) return std::nullopt;
    seconds = seconds * 60 + *number;
  }
  return days + std::chrono::seconds(seconds);
}

std::optional<Time> parse_time(std::string_view text) {
  const auto seconds = base::whole_number<std::int64_t>(base::trimmed(text));
  constexpr std::int64_t kYear2100 = 4'102'444'800;  // Slurm's "never" is later than this
  if (!seconds || *seconds <= 0 || *seconds > kYear2100) return std::nullopt;
  return Time(std::chrono::seconds(*seconds));
}

std::string squeue_format(const std::string& separator) {
  return base::joined(kSqueueFields, ":" + separator + ",") + ":" + separator;
}

std::string sacct_format() {
  return base::joined(kSacctFields, ",");
}

Parsed<std::vector<ListedJob>> parse_squeue(std::string_view text, const std::string& separator) {
  std::vector<ListedJob> jobs;
  std::array<std::string, kSqueueFields.size()> fields;
  for (Rows rows(text, separator); !rows.at_end();) {
    if (auto problem = rows.read(fields); !problem.empty()) return problem;
    if (fields[0].empty() || fields[1].empty()) return rows.problem("has no job id or no state");
    if (fields[0].find('+') != std::string::npos) continue;
    const auto id = parse_listed_id(fields[0]);
    if (!id) return rows.problem("has the odd job id '" + fields[0] + "'");
    if (const auto* job = std::get_if<JobId>(&*id)) jobs.push_back(listed_job(fields, *job));
  }
  return jobs;
}

Parsed<std::vector<PastRun>> parse_sacct(std::string_view text, const std::string& separator) {
  std::vector<PastRun> runs;
  std::array<std::string, kSacctFields.size()> f;
  for (Rows rows(text, separator); !rows.at_end();) {
    if (auto problem = rows.read(f); !problem.empty()) return problem;
    if (f[0].find_first_of("+.") != std::string::npos) continue;
    const auto id = parse_listed_id(f[0]);
    const auto exit = exit_pair(f[2]);
    if (!id || !exit || f[1].empty()) return rows.problem("has an odd job id, state or exit code");
    const auto* job = std::get_if<JobId>(&*id);
    if (job == nullptr) continue;  // tasks that have not started have no runs
    PastRun run;
    run.id = *job;
    run.state = parse_job_state(f[1]);
    run.exit = *exit;
    run.submitted = parse_time(f[3]);
    run.started = parse_time(f[4]);
    run.ended = parse_time(f[5]);
    run.node_list = f[6] == "None assigned" ? "" : f[6];
    run.comment = f[7];
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace slurm
