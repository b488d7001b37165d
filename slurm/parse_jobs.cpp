#include <array>

#include "slurm/parse.h"
#include "slurm/text.h"

namespace slurm {
namespace {

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
  const auto status = parse_number<std::uint32_t>(text);
  if (!status) return std::nullopt;
  return ExitStatus{static_cast<int>((*status >> 8) & 0xff), static_cast<int>(*status & 0x7f)};
}

/// sacct's "7:0".
std::optional<ExitStatus> exit_pair(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto code = parse_number<int>(std::string_view(text).substr(0, colon));
  const auto signal = parse_number<int>(std::string_view(text).substr(colon + 1));
  if (!code || !signal) return std::nullopt;
  return ExitStatus{*code, *signal};
}

ListedJob listed_job(const std::array<std::string, kSqueueFields.size()>& f, const JobId& id) {
  ListedJob job;
  job.id = id;
  job.state = parse_job_state(f[1]);
  job.reason = f[2];
  job.node_list = f[3];
  job.restarts = parse_number<std::uint32_t>(f[4]).value_or(0);
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
  job.priority = parse_number<std::uint64_t>(f[12]).value_or(0);
  job.comment = f[13];
  return job;
}

}  // namespace

std::optional<std::chrono::seconds> parse_duration(std::string_view text) {
  std::chrono::seconds days{0};
  if (const auto dash = text.find('-'); dash != std::string_view::npos) {
    const auto count = parse_number<std::uint32_t>(text.substr(0, dash));
    if (!count) return std::nullopt;
    days = std::chrono::seconds(std::int64_t{*count} * 86400);
    text = text.substr(dash + 1);
  }
  std::int64_t seconds = 0;
  const auto parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  for (const auto& part : parts) {
    const auto number = parse_number<std::uint32_t>(part);
    if (!number) return std::nullopt;
    seconds = seconds * 60 + *number;
  }
  return days + std::chrono::seconds(seconds);
}

std::optional<Time> parse_time(std::string_view text) {
  const auto seconds = parse_number<std::int64_t>(trimmed(text));
  constexpr std::int64_t kYear2100 = 4'102'444'800;  // Slurm's "never" is later than this
  if (!seconds || *seconds <= 0 || *seconds > kYear2100) return std::nullopt;
  return Time(std::chrono::seconds(*seconds));
}

std::string squeue_format(const std::string& separator) {
  std::string format;
  for (const auto field : kSqueueFields) {
    if (!format.empty()) format += ",";
    format += std::string(field) + ":" + separator;
  }
  return format;
}

std::string sacct_format() {
  std::string format;
  for (const auto field : kSacctFields) format += (format.empty() ? "" : ",") + std::string(field);
  return format;
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
