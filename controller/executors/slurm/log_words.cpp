#include "executors/slurm/log_words.h"

#include <spdlog/spdlog.h>

#include "executors/slurm/submission.h"
#include "os/durable_file.h"

namespace executors::on_slurm {
namespace {

constexpr std::uintmax_t kMostRead = 16 * 1024;  // from the end of the log

/// What the log of the attempt in this folder says at its end. Empty: there is no log, or it cannot be read.
std::string end_of_log(const std::filesystem::path& attempt_folder) {
  try {
    const auto log = slurm_log_of(attempt_folder);
    std::error_code none;
    const auto size = std::filesystem::file_size(log, none);
    return none ? std::string() : os::read_small_file(log, kMostRead, size > kMostRead ? size - kMostRead : 0);
  } catch (const std::exception& error) {
    spdlog::warn("the Slurm log of an attempt cannot be read: {}", error.what());
    return {};
  }
}

bool says_nothing(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

std::string telling_line(std::string_view log) {
  std::string_view best;
  while (!log.empty()) {
    const auto begin = log.rfind('\n') + 1;  // 0 if there is none
    const auto line = log.substr(begin);
    log = log.substr(0, begin == 0 ? 0 : begin - 1);
    if (says_nothing(line)) continue;
    if (best.empty()) best = line;
    if (line.starts_with("srun: ")) continue;
    best = line;
    break;
  }
  std::string text;
  for (const char c : best.substr(0, kLongestQuote)) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) text += c;
  }
  return text;
}

bool was_begun_already(const std::filesystem::path& attempt_folder) {
  return telling_line(end_of_log(attempt_folder)).starts_with(kBegunAlready);
}

std::string quote_of_log(const std::filesystem::path& attempt_folder) {
  const auto line = telling_line(end_of_log(attempt_folder));
  return line.empty() ? std::string() : "; its Slurm log ends with: " + line;
}

}  // namespace executors::on_slurm
