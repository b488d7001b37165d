#include "agent/program/log_link.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

namespace agent::program {
namespace {

constexpr std::size_t kWidest = 10;  // as sbatch
constexpr const char* kNoTask = "4294967294";

std::string text_of(const char* name, const std::string& otherwise = {}) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : std::string(value);
}

std::string user_name() {
  const passwd* entry = ::getpwuid(::geteuid());
  return entry == nullptr ? std::to_string(::geteuid()) : std::string(entry->pw_name);
}

std::optional<std::string> value_of(char sign, const PatternNames& names) {
  switch (sign) {
    case 'x':
      return names.job_name;
    case 'j':
      return names.job;
    case 'J':
      return names.step.empty() ? names.job : names.job + "." + names.step;
    case 's':
      return names.step;
    case 'A':
      return names.array_job;
    case 'a':
      return names.array_task;
    case 'N':
      return names.node;
    case 'u':
      return names.user;
    case 'n':
      return std::to_string(names.node_rank);
    case 't':
      return std::to_string(names.rank);
    case '%':
      return "%";
    default:
      return std::nullopt;
  }
}

bool is_number(char sign) {
  return std::string_view("jJsAant").find(sign) != std::string_view::npos;
}

}  // namespace

PatternNames pattern_names(const std::string& job_name, int rank, int node_rank) {
  PatternNames names;
  names.job_name = job_name;
  std::ranges::replace(names.job_name, '/', '_');
  names.job = text_of("SLURM_JOB_ID");
  names.step = text_of("SLURM_STEP_ID");
  names.array_job = text_of("SLURM_ARRAY_JOB_ID", names.job);
  names.array_task = text_of("SLURM_ARRAY_TASK_ID", kNoTask);
  const auto node = text_of("SLURMD_NODENAME");
  names.node = node.substr(0, node.find('.'));
  names.user = user_name();
  names.node_rank = node_rank;
  names.rank = rank;
  return names;
}

std::optional<std::string> expand_pattern(const std::string& pattern, const PatternNames& names) {
  std::string expanded;
  bool each_rank = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      expanded += pattern[i];
      continue;
    }
    std::size_t end = i + 1;
    while (end < pattern.size() && pattern[end] >= '0' && pattern[end] <= '9') ++end;
    const char sign = end < pattern.size() ? pattern[end] : '\0';
    const auto value = value_of(sign, names);
    if (!value) {
      expanded += '%';
      continue;
    }
    each_rank |= sign == 't';
    const auto digits = pattern.substr(i + 1, end - i - 1);
    if (is_number(sign) && !digits.empty()) {
      const auto width = digits.size() > 2 ? kWidest : std::min<std::size_t>(std::stoul(digits), kWidest);
      if (value->size() < width) expanded.append(width - value->size(), '0');
    }
    expanded += *value;
    i = end;
  }
  if (!each_rank && names.rank != 0) return std::nullopt;
  return expanded;
}

void place_link(const std::filesystem::path& link, const std::filesystem::path& log) {
  const auto give_up = [&](const std::string& why) { throw std::runtime_error(link.string() + ": " + why); };
  std::error_code error;
  if (link.has_parent_path()) std::filesystem::create_directories(link.parent_path(), error);
  if (error) give_up("its folder cannot be made: " + error.message());
  const auto there = std::filesystem::symlink_status(link, error);
  if (std::filesystem::exists(there) && !std::filesystem::is_symlink(there)) {
    give_up("there is a file of that name already; move it away, or change slurm.output");
  }
  const std::filesystem::path fresh = link.string() + "." + std::to_string(::getpid());
  std::filesystem::create_symlink(log, fresh, error);
  if (error) give_up(error.message());
  std::filesystem::rename(fresh, link, error);
  if (!error) return;
  const auto why = error.message();
  std::filesystem::remove(fresh, error);
  give_up(why);
}

}  // namespace agent::program
