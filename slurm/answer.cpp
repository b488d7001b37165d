#include "slurm/answer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/words.h"

namespace slurm {
namespace {

// These texts mean that the request cannot have reached slurmctld.
constexpr std::array<std::string_view, 11> kNotSentTexts = {
    "(connect failure)",
    "Could not establish a configuration source",
    "Unable to process configuration file",
    "unable to status file",
    "Unable to establish control",
    "Munge encode failed",
    "If munged is up",
    "Failed to access",
    "Slurm temporarily unable to accept job",
    "Unable to create job record, try again",
    "Slurm backup controller in standby mode",
};

// These texts mean that slurmctld may have received the request, and that the outcome is unknown. They count before
// kNotSentTexts, because one line may be about a second controller.
constexpr std::array<std::string_view, 7> kLostTexts = {
    "Socket timed out",   "Zero Bytes were transmitted", "(send failure)",  "(receive failure)",
    "(shutdown failure)", "Message receive failure",     "Connection reset"};

// These texts mean that something between this process and slurmctld is wrong. They do not say whether slurmctld
// received the request.
constexpr std::array<std::string_view, 10> kUnclearTexts = {"Unable to contact",
                                                            "Unexpected message received",
                                                            "Communication connection failure",
                                                            "Message send failure",
                                                            "Connection refused",
                                                            "Connection timed out",
                                                            "No route to host",
                                                            "rotocol authentication error",
                                                            "Incompatible versions of client and server",
                                                            "Resource temporarily unavailable"};

bool says(const std::string& words, std::string_view part) {
  return words.find(part) != std::string::npos;
}

template <std::size_t N>
bool says_any(const std::string& words, const std::array<std::string_view, N>& parts) {
  return std::ranges::any_of(parts, [&](auto part) { return says(words, part); });
}

/// "sbatch: error: Invalid partition" -> "Invalid partition".
std::string_view without_prefix(std::string_view line, std::string_view program) {
  line = base::trimmed(line);
  for (const auto prefix : {program, std::string_view("error"), std::string_view("fatal")}) {
    if (line.starts_with(prefix) && line.substr(prefix.size()).starts_with(": ")) {
      line = base::trimmed(line.substr(prefix.size() + 2));
    }
  }
  return line;
}

// Texts of slurmctld: the cluster does not have what the job asks for. Texts of sbatch: it cannot read an option.
// " specification" occurs in "Invalid qos specification", "Node count specification invalid" and twenty others.
constexpr std::array<std::string_view, 22> kUsers = {
    " specification",
    "Invalid partition name specified",
    "No partition specified or system default partition",
    "User's group not permitted to use this partition",
    "Requested nodes not in this partition",
    "Invalid node name specified",
    "Invalid account or account/partition combination specified",
    "Requested node configuration is not available",
    "More processors requested than permitted",
    "Requested more tasks than available processors",
    "Memory required by task is not available",
    "Requested time limit is invalid",
    "Access denied to requested reservation",
    "Requested reservation is invalid",
    "Requested GRES option unsupported",
    "Pathname of a file, directory or other parameter too long",
    "Job --batch option is invalid",
    "Failed to validate job spec",
    "Invalid directive found in batch script",
    "unrecognized option",
    "Invalid --",
    "Invalid numeric value",
};

constexpr std::array<std::string_view, 8> kForNow = {
    "temporarily",
    "Maximum job count",
    "try again",
    "in standby mode",
    "(inactive or drain)",
    "Requested partition configuration not available now",
    "Requested reservation not usable now",
    "Requested operation is presently disabled",
};

constexpr std::string_view kArray = "Invalid job array specification";
constexpr std::string_view kForbidden = "permission denied";
constexpr std::string_view kPolicy = "Job violates accounting/QOS policy";

/// Slurm's accounting uses one sentence for all its limits: on a job's size, on its time, on the number of jobs. An
/// earlier line may name the limit: QOSMaxSubmitJobPerUserLimit, AssocGrpSubmitJobsLimit,
/// QOSMaxWallDurationPerJobLimit.
Refusal of_policy(const std::string& words) {
  const auto limit = words.substr(0, words.find(kPolicy));
  const bool too_many = says(limit, "SubmitJob") || (!says(limit, "QOS") && !says(limit, "Assoc"));
  return too_many ? Refusal::kTooMany : Refusal::kUsers;
}

constexpr std::string_view kFailed = "Batch job submission failed: ";

/// One line of a program whose name begins with sbatch.
struct Line {
  std::string program;
  bool is_error = false;  // "error: " or "fatal: "
  bool is_fatal = false;
  std::string text;  // without program and level
  bool is_final() const { return is_error && text.starts_with(kFailed); }
};

std::optional<Line> line_of(std::string_view text) {
  const auto colon = text.find(": ");
  if (colon == std::string_view::npos) return std::nullopt;
  auto program = text.substr(0, colon);
  if (program.find(' ') != std::string_view::npos) return std::nullopt;
  // A wrapper may have called sbatch by its full path.
  if (const auto slash = program.rfind('/'); slash != std::string_view::npos) program.remove_prefix(slash + 1);
  if (!program.starts_with("sbatch")) return std::nullopt;
  Line line;
  line.program = program;
  text.remove_prefix(colon + 2);
  for (const std::string_view level : {"error: ", "fatal: "}) {
    if (!text.starts_with(level)) continue;
    line.is_error = true;
    line.is_fatal = line.is_fatal || level == "fatal: ";
    text.remove_prefix(level.size());
  }
  line.text = base::trimmed(text);
  return line;
}

/// The lines of sbatch itself, without those of a wrapper. The program that wrote the final failure counts as sbatch;
/// without a final failure the program called "sbatch" does.
std::vector<Line> words_of_sbatch(const std::string& err) {
  std::vector<Line> lines;
  std::string program = "sbatch";
  for (const auto& text : base::split(err, '\n')) {
    auto line = line_of(text);
    if (!line) continue;
    if (line->is_final()) program = line->program;
    lines.push_back(std::move(*line));
  }
  std::erase_if(lines, [&](const Line& line) {
    return line.program != program || line.text.empty() || line.text.starts_with("Try \"sbatch");
  });
  return lines;
}

/// The line says that sbatch retries, so a request has been sent.
bool is_wait(const Line& line) {
  return says(line.text, "retrying");
}

std::string joined_texts(const std::vector<Line>& lines) {
  std::vector<std::string> texts;
  for (const auto& line : lines) texts.push_back(line.text);
  return base::joined(texts, "; ");
}

/// "1234", "1234;cluster" or "Submitted batch job 1234".
bool names_a_job(const std::string& out) {
  return std::ranges::any_of(base::split(out, '\n'), [](std::string_view line) {
    constexpr std::string_view kSubmitted = "Submitted batch job ";
    line = base::trimmed(line);
    if (line.starts_with(kSubmitted)) line.remove_prefix(kSubmitted.size());
    line = line.substr(0, line.find_first_of("; "));
    return !line.empty() && line.find_first_not_of("0123456789") == std::string_view::npos;
  });
}

/// The meaning of these words as sbatch's last ones.
Failure meaning(const std::string& words) {
  base::CommandResult said;
  said.exit_code = 1;
  said.err = words;
  return explain_failure("sbatch", said).kind;
}

SubmitAnswer finally_failed(std::string why, const std::vector<Line>& lines) {
  const auto last = lines.back().text.substr(kFailed.size());
  const auto all = joined_texts(lines);
  // One of the lines may be about a second controller.
  if (says_any(all, kLostTexts)) return Unsure{std::move(why)};
  // Without munge no request can be signed, so none is sent. The last line alone does not say so.
  const bool no_munge = says(last, "rotocol authentication error") && says(all, "Munge encode failed");
  const auto kind = no_munge ? Failure::kNotSent : meaning(last);
  if (kind == Failure::kNotSent) return Unreachable{std::move(why)};
  if (kind == Failure::kLost) return Unsure{std::move(why)};
  // An earlier line names the limit of accounting.
  const bool has_limit = says(last, "accounting/QOS policy");
  const auto refusal = understand_refusal(has_limit ? all : last);
  if (refusal == Refusal::kUnknown) return Unsure{std::move(why), true};
  return Refused{std::move(why), refusal};
}

}  // namespace

std::string complaint(const std::string& program, const base::CommandResult& result) {
  constexpr std::size_t kMaxText = 2000;
  std::string all;
  for (const auto& line : base::split(base::trimmed(result.err).empty() ? result.out : result.err, '\n')) {
    const auto text = without_prefix(line, program);
    if (text.empty()) continue;
    base::append(all, text, "; ");
    if (all.size() > kMaxText) return all.substr(0, kMaxText) + "...";
  }
  return all;
}

FailureText explain_failure(const std::string& program, const base::CommandResult& result) {
  if (!result.could_not_start.empty()) return {Failure::kNotSent, result.could_not_start};
  const auto text = complaint(program, result);
  const auto colon = text.empty() ? text : ": " + text;
  if (result.timed_out) {
    // A command sends no request before it has read its configuration file.
    const bool asked = !says(text, "s_p_parse_file");
    return {asked ? Failure::kLost : Failure::kNotSent,
            program + " had no answer within " + std::to_string(result.took.count()) + " ms" + colon};
  }
  if (result.signal != 0) {
    return {Failure::kLost, program + " was ended by signal " + std::to_string(result.signal) + colon};
  }
  if (says_any(text, kLostTexts)) return {Failure::kLost, program + colon};
  if (says_any(text, kNotSentTexts)) return {Failure::kNotSent, program + colon};
  if (says_any(text, kUnclearTexts)) return {Failure::kLost, program + colon};
  if (text.empty()) {
    return {Failure::kRefused,
            program + " failed with exit code " + std::to_string(result.exit_code) + " and no message"};
  }
  return {Failure::kRefused, text};
}

bool is_final(Refusal kind) {
  return kind == Refusal::kUsers || kind == Refusal::kArray;
}

Refusal understand_refusal(const std::string& words) {
  if (says(words, kPolicy)) return of_policy(words);
  if (says(words, "MaxSubmit")) return Refusal::kTooMany;
  if (says_any(words, kForNow)) return Refusal::kForNow;
  if (says(words, kArray)) return Refusal::kArray;
  return says_any(words, kUsers) ? Refusal::kUsers : Refusal::kUnknown;
}

Refusal understand_refused_change(const std::string& words) {
  return says(words, kForbidden) ? Refusal::kForbidden : Refusal::kUnknown;
}

SubmitAnswer failed_submission(const base::CommandResult& result) {
  auto why = explain_failure("sbatch", result).why;
  if (!result.could_not_start.empty()) return Unreachable{std::move(why)};
  const bool ended = !result.timed_out && result.signal == 0;
  if (names_a_job(result.out)) return Unsure{std::move(why), ended};
  auto lines = words_of_sbatch(result.err);
  if (!ended) {
    // sbatch sends no request before it has read its configuration file.
    const bool still_reads = !lines.empty() && lines.back().text.starts_with("s_p_parse_file");
    if (result.timed_out && still_reads) return Unreachable{std::move(why)};
    return Unsure{std::move(why)};
  }
  const bool has_asked = std::ranges::any_of(lines, is_wait);
  std::erase_if(lines, is_wait);
  if (lines.empty()) return Unsure{std::move(why), true};
  const auto& last = lines.back();
  if (last.is_final()) return finally_failed(std::move(why), lines);
  if (says_any(joined_texts(lines), kLostTexts)) return Unsure{std::move(why)};
  if (has_asked || last.text.starts_with("warning: ")) return Unsure{std::move(why), true};
  if (last.is_fatal && meaning(last.text) == Failure::kNotSent) return Unreachable{std::move(why)};
  const auto refusal = understand_refusal(last.text);
  if (!is_final(refusal)) return Unsure{std::move(why), true};
  return Refused{std::move(why), refusal};
}

}  // namespace slurm
