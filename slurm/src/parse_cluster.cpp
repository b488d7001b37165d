#include <algorithm>
#include <array>
#include <cctype>

#include "parse.h"
#include "text.h"

namespace slurm {
namespace {

using Fields = std::map<std::string, std::string>;

std::string field(const Fields& fields, const std::string& name) {
  const auto found = fields.find(name);
  return found == fields.end() || found->second == "(null)" ? "" : found->second;
}

template <class T>
T number_field(const Fields& fields, const std::string& name, T otherwise = 0) {
  return parse_number<T>(field(fields, name)).value_or(otherwise);
}

/// A list in which ALL, N/A and NONE mean no restriction.
std::vector<std::string> list_field(const Fields& fields, const std::string& name) {
  const auto text = field(fields, name);
  if (text == "ALL" || text == "N/A" || text == "NONE") return {};
  return split(text, ',');
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
  p.max_nodes = parse_number<std::uint32_t>(field(fields, "MaxNodes"));
  p.min_nodes = number_field<std::uint32_t>(fields, "MinNodes");
  p.allow_groups = list_field(fields, "AllowGroups");
  p.allow_accounts = list_field(fields, "AllowAccounts");
  p.deny_accounts = list_field(fields, "DenyAccounts");
  p.allow_qos = list_field(fields, "AllowQos");
  p.deny_qos = list_field(fields, "DenyQos");
  p.qos = field(fields, "QoS") == "N/A" ? "" : field(fields, "QoS");
  p.priority_tier = number_field<std::uint32_t>(fields, "PriorityTier");
  p.preempt_mode = field(fields, "PreemptMode");
  p.grace = std::chrono::seconds(number_field<std::int64_t>(fields, "GraceTime"));
  p.tres = field(fields, "TRES");
  p.fields = fields;
  return p;
}

Node node_of(const Fields& fields) {
  Node n;
  n.name = field(fields, "NodeName");
  n.address = field(fields, "NodeAddr");
  n.host_name = field(fields, "NodeHostName");
  for (auto state : split(field(fields, "State"), '+')) {
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
  n.features = list_field(fields, "AvailableFeatures");
  n.partitions = list_field(fields, "Partitions");
  n.slurmd_started = parse_time(field(fields, "SlurmdStartTime"));
  n.fields = fields;
  return n;
}

ListedJob shown_job(const Fields& fields) {
  ListedJob job;
  job.raw_id = number_field<std::uint64_t>(fields, "JobId");
  job.state = parse_job_state(field(fields, "JobState"));
  job.reason = field(fields, "Reason");
  job.restarts = number_field<std::uint32_t>(fields, "Restarts");
  job.submitted = parse_time(field(fields, "SubmitTime"));
  job.started = parse_time(field(fields, "StartTime"));
  job.node_list = field(fields, "NodeList");
  job.name = field(fields, "JobName");
  job.comment = field(fields, "Comment");
  job.work_folder = field(fields, "WorkDir");
  return job;
}

/// Parses exit codes: "99" or "10-12,99".
std::vector<int> exit_codes(const std::string& text) {
  std::vector<int> codes;
  for (const auto& part : split(text, ',')) {
    const auto dash = part.find('-');
    const auto first = parse_number<int>(part.substr(0, dash));
    const auto last = dash == std::string::npos ? first : parse_number<int>(part.substr(dash + 1));
    if (!first || !last) continue;
    for (int code = *first; code <= std::min(*last, 255); ++code) codes.push_back(code);
  }
  return codes;
}

/// Parses "300 sec".
std::chrono::seconds seconds_field(const Fields& fields, const std::string& name, std::chrono::seconds otherwise) {
  const auto text = field(fields, name);
  const auto number = parse_number<std::int64_t>(std::string_view(text).substr(0, text.find(' ')));
  return number ? std::chrono::seconds(*number) : otherwise;
}

/// The value of an entry in a list like "socket=/run/munge,cred_expire=5".
std::optional<std::string> list_entry(const std::string& list, const std::string& name) {
  for (const auto& part : split(list, ',')) {
    const auto text = trimmed(part);
    if (text == name) return "";
    if (text.starts_with(name + "=")) return std::string(text.substr(name.size() + 1));
  }
  return std::nullopt;
}

ClusterConfig config_of(const Fields& fields) {
  ClusterConfig c;
  c.cluster = field(fields, "ClusterName");
  c.version = field(fields, "SLURM_VERSION");
  c.requeue_exit = exit_codes(field(fields, "RequeueExit"));
  c.requeue_exit_hold = exit_codes(field(fields, "RequeueExitHold"));
  c.job_requeue = field(fields, "JobRequeue") != "0";
  c.kill_wait = seconds_field(fields, "KillWait", c.kill_wait);
  c.slurmd_timeout = seconds_field(fields, "SlurmdTimeout", c.slurmd_timeout);
  c.min_job_age = seconds_field(fields, "MinJobAge", c.min_job_age);
  c.message_timeout = seconds_field(fields, "MessageTimeout", c.message_timeout);
  if (const auto expire = list_entry(field(fields, "AuthInfo"), "cred_expire")) {
    c.cred_expire = std::chrono::seconds(parse_number<std::int64_t>(*expire).value_or(c.cred_expire.count()));
  }
  c.max_array_size = number_field<std::uint64_t>(fields, "MaxArraySize", c.max_array_size);
  c.max_job_count = number_field<std::uint64_t>(fields, "MaxJobCount", c.max_job_count);
  c.preempt_type = field(fields, "PreemptType");
  c.preempt_mode = field(fields, "PreemptMode");
  c.warns_at_preemption = list_entry(field(fields, "SlurmctldParameters"), "preempt_send_user_signal").has_value();
  c.has_accounting = field(fields, "AccountingStorageType") == "accounting_storage/slurmdbd";
  c.fields = fields;
  return c;
}

/// Parses one object a line. Each line must have a name.
template <class T>
Parsed<std::vector<T>> parse_lines(std::string_view text, const std::string& name_key, T (*make)(const Fields&)) {
  std::vector<T> all;
  for (const auto& line : split(text, '\n')) {
    if (trimmed(line).empty()) continue;
    const auto fields = parse_pairs(line);
    if (!fields.contains(name_key)) return "a line without " + name_key + ": " + line.substr(0, 200);
    all.push_back(make(fields));
  }
  return all;
}

}  // namespace

std::map<std::string, std::string> parse_pairs(std::string_view line, std::string_view last_key) {
  std::map<std::string, std::string> fields;
  line = trimmed(line);
  while (!line.empty()) {
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) break;
    const std::string key(trimmed(line.substr(0, equals)));
    const auto end = key == last_key ? line.size() : next_key(line, equals + 1);
    fields.try_emplace(key, trimmed(line.substr(equals + 1, end - equals - 1)));
    line = trimmed(line.substr(end));
  }
  return fields;
}

// One line stands for all elements of an array that have not started yet.
Parsed<std::vector<ListedJob>> parse_shown_jobs(std::string_view text) {
  std::vector<ListedJob> jobs;
  for (const auto& line : split(text, '\n')) {
    if (trimmed(line).empty()) continue;
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
  for (const auto& line : split(text, '\n')) {
    const auto equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    fields.try_emplace(std::string(trimmed(line.substr(0, equals))), trimmed(line.substr(equals + 3)));
  }
  if (!fields.contains("ClusterName")) return std::string("no ClusterName in it");
  auto config = config_of(fields);
  constexpr std::string_view kNow = "Configuration data as of ";
  if (text.starts_with(kNow)) config.now = parse_time(trimmed(text.substr(kNow.size(), text.find('\n') - kNow.size())));
  return config;
}

std::optional<StartEstimate> parse_start(std::string_view text) {
  for (const auto& line : split(text, '\n')) {
    const auto at = line.find(" to start at ");
    if (at == std::string::npos || line.find("Job ") > at) continue;
    StartEstimate estimate;
    estimate.said = trimmed(line.substr(line.find("Job ")));
    const auto words = split(std::string_view(line).substr(at + 13), ' ');
    if (!words.empty()) estimate.start = parse_time(words.front());
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == "using") estimate.cpus = parse_number<std::uint32_t>(words[i + 1]).value_or(0);
      if (words[i] == "nodes") estimate.node_list = words[i + 1];
      if (words[i] == "partition") estimate.partition = words[i + 1];
    }
    return estimate;
  }
  return std::nullopt;
}

bool Node::usable() const {
  constexpr std::array<std::string_view, 12> kBad = {"DOWN",   "DRAIN",   "DRAINED",       "DRAINING",
                                                     "FAIL",   "FAILING", "ERROR",         "UNKNOWN",
                                                     "FUTURE", "INVAL",   "REBOOT_ISSUED", "NOT_RESPONDING"};
  if (!responds || states.empty()) return false;
  return std::ranges::none_of(states, [&](const auto& state) { return std::ranges::find(kBad, state) != kBad.end(); });
}

}  // namespace slurm
