#include "slurm/failure.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "slurm/text.h"

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

template <std::size_t N>
bool has_any(const std::string& text, const std::array<std::string_view, N>& parts) {
  return std::ranges::any_of(parts, [&](auto part) { return text.find(part) != std::string::npos; });
}

/// "sbatch: error: Invalid partition" -> "Invalid partition".
std::string_view without_prefix(std::string_view line, std::string_view program) {
  line = trimmed(line);
  for (const auto prefix : {program, std::string_view("error"), std::string_view("fatal")}) {
    if (line.starts_with(prefix) && line.substr(prefix.size()).starts_with(": ")) {
      line = trimmed(line.substr(prefix.size() + 2));
    }
  }
  return line;
}

}  // namespace

std::string complaint(const std::string& program, const base::CommandResult& result) {
  constexpr std::size_t kMaxText = 2000;
  std::string all;
  for (const auto& line : split(trimmed(result.err).empty() ? result.out : result.err, '\n')) {
    const auto text = without_prefix(line, program);
    if (text.empty()) continue;
    if (!all.empty()) all += "; ";
    all += text;
    if (all.size() > kMaxText) return all.substr(0, kMaxText) + "...";
  }
  return all;
}

bool tells_of_a_lost_answer(const std::string& words) {
  return has_any(words, kLostTexts);
}

FailureText explain_failure(const std::string& program, const base::CommandResult& result) {
  if (!result.could_not_start.empty()) return {Failure::kNotSent, result.could_not_start};
  const auto text = complaint(program, result);
  const auto colon = text.empty() ? text : ": " + text;
  if (result.timed_out) {
    // A command sends no request before it has read its configuration file.
    const bool asked = text.find("s_p_parse_file") == std::string::npos;
    return {asked ? Failure::kLost : Failure::kNotSent,
            program + " had no answer within " + std::to_string(result.took.count()) + " ms" + colon};
  }
  if (result.signal != 0) {
    return {Failure::kLost, program + " was ended by signal " + std::to_string(result.signal) + colon};
  }
  if (has_any(text, kLostTexts)) return {Failure::kLost, program + colon};
  if (has_any(text, kNotSentTexts)) return {Failure::kNotSent, program + colon};
  if (has_any(text, kUnclearTexts)) return {Failure::kLost, program + colon};
  if (text.empty()) {
    return {Failure::kRefused,
            program + " failed with exit code " + std::to_string(result.exit_code) + " and no message"};
  }
  return {Failure::kRefused, text};
}

}  // namespace slurm
