#include "spec/log_pattern.h"

#include <re2/re2.h>

namespace spec {
namespace {

constexpr std::int64_t kMostMemory = 1 << 20;  // of the compiled expression and of its states

std::unique_ptr<re2::RE2> compiled(const std::string& pattern) {
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMostMemory);
  return std::make_unique<re2::RE2>(pattern, options);
}

}  // namespace

LogPattern::LogPattern(const std::string& pattern) {
  if (pattern.size() > kLongestPattern) {
    problem_ = "want at most " + std::to_string(kLongestPattern) + " bytes";
    remedy_ = "match only the words around the number";
    return;
  }
  expression_ = compiled(pattern);
  if (!expression_->ok()) {
    problem_ = "want a regular expression: " + expression_->error();
    remedy_ = "write it in the syntax of RE2, which has no lookaround and no backreference";
    if (expression_->error_code() == re2::RE2::ErrorPatternTooLarge) remedy_ = "use smaller repetitions";
    if (expression_->error_code() == re2::RE2::ErrorMissingParen)
      remedy_ = R"(write a bracket of the text as \( or \))";
  } else if (expression_->NumberOfCapturingGroups() < 1) {
    problem_ = "want a group around the number";
    remedy_ = R"(such as 'loss ([\d.]+)')";
  }
  if (!problem_.empty()) expression_.reset();
}

LogPattern::~LogPattern() = default;
LogPattern::LogPattern(LogPattern&&) noexcept = default;
LogPattern& LogPattern::operator=(LogPattern&&) noexcept = default;

std::optional<std::string_view> LogPattern::find(std::string_view line) const {
  re2::StringPiece found;
  if (!expression_ || !re2::RE2::PartialMatch(re2::StringPiece(line.data(), line.size()), *expression_, &found)) {
    return std::nullopt;
  }
  if (found.data() == nullptr) return std::nullopt;  // another alternative matched
  return std::string_view(found.data(), found.size());
}

}  // namespace spec
