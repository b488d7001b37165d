#include "slurm/failed_submission.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/failure.h"
#include "slurm/text.h"

namespace slurm {
namespace {

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
  line.text = trimmed(text);
  return line;
}

/// The lines of sbatch itself, without those of a wrapper. The program that wrote the final failure counts as sbatch;
/// without a final failure the program called "sbatch" does.
std::vector<Line> words_of_sbatch(const std::string& err) {
  std::vector<Line> lines;
  std::string program = "sbatch";
  for (const auto& text : split(err, '\n')) {
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
  return line.text.find("retrying") != std::string::npos;
}

std::string joined_texts(const std::vector<Line>& lines) {
  std::vector<std::string> texts;
  for (const auto& line : lines) texts.push_back(line.text);
  return joined(texts, "; ");
}

/// "1234", "1234;cluster" or "Submitted batch job 1234".
bool names_a_job(const std::string& out) {
  return std::ranges::any_of(split(out, '\n'), [](std::string_view line) {
    constexpr std::string_view kSubmitted = "Submitted batch job ";
    line = trimmed(line);
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
  if (tells_of_a_lost_answer(all)) return Unsure{std::move(why)};
  // Without munge no request can be signed, so none is sent. The last line alone does not say so.
  const bool no_munge = last.find("rotocol authentication error") != std::string::npos &&
                        all.find("Munge encode failed") != std::string::npos;
  const auto kind = no_munge ? Failure::kNotSent : meaning(last);
  if (kind == Failure::kNotSent) return Unreachable{std::move(why)};
  if (kind == Failure::kLost) return Unsure{std::move(why)};
  // An earlier line names the limit of accounting.
  const bool has_limit = last.find("accounting/QOS policy") != std::string::npos;
  const auto refusal = understand_refusal(has_limit ? all : last);
  if (refusal == Refusal::kUnknown) return Unsure{std::move(why), true};
  return Refused{std::move(why), refusal};
}

}  // namespace

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
  if (tells_of_a_lost_answer(joined_texts(lines))) return Unsure{std::move(why)};
  if (has_asked || last.text.starts_with("warning: ")) return Unsure{std::move(why), true};
  if (last.is_fatal && meaning(last.text) == Failure::kNotSent) return Unreachable{std::move(why)};
  const auto refusal = understand_refusal(last.text);
  if (!is_final(refusal)) return Unsure{std::move(why), true};
  return Refused{std::move(why), refusal};
}

}  // namespace slurm
