#include "cli/key_help.h"

#include "cli/cli_text.h"
#include "spec/jobfile/job_keys.h"

namespace cli {
namespace {

std::string default_of(const spec::Key& field) {
  if (!field.derived.empty()) return "(" + std::string(field.derived) + ")";
  if (field.standard.empty()) return "";
  const bool quoted = field.kind == spec::Kind::kChoice || field.kind == spec::Kind::kDuration ||
                      field.kind == spec::Kind::kSize || field.kind == spec::Kind::kText;
  return quoted ? "\"" + std::string(field.standard) + "\"" : std::string(field.standard);
}

std::string choices_of(const spec::Key& field) {
  if (field.choices.find(' ') == std::string_view::npos) return "";
  std::string text;
  for (const char c : field.choices) text += c == ' ' ? std::string(", ") : std::string(1, c);
  return " One of " + text + ".";
}

/// The form of the rows of a table whose keys people choose; nullptr: the kind is no such table.
const char* row_of_table(spec::Kind kind) {
  if (kind == spec::Kind::kVariables) return "NAME = \"value\"";
  if (kind == spec::Kind::kPatterns) return "SERIES = 'PATTERN'";
  if (kind == spec::Kind::kSweep) return "KEY = [value, ...]";
  return kind == spec::Kind::kOptions ? "OPTION = \"value\"" : nullptr;
}

}  // namespace

std::string key_help(std::size_t width) {
  std::string text, table;
  for (const auto& field : jobfile::job_keys()) {
    const auto dot = field.name.find('.');
    const auto inside = dot == std::string_view::npos ? std::string() : std::string(field.name.substr(0, dot));
    if (const auto* row = row_of_table(field.kind); row != nullptr) {
      text += "[" + std::string(field.name) + "]\n  " + row + "\n";
    } else {
      if (inside != table) text += "[" + inside + "]\n";
      table = inside;
      const auto standard = default_of(field);
      text += (inside.empty() ? "" : "  ") + std::string(inside.empty() ? field.name : field.name.substr(dot + 1));
      text += (standard.empty() ? "" : " = " + standard) + "\n";
    }
    for (const auto& line : wrapped(std::string(field.meaning) + choices_of(field), width - 6)) {
      text += "      " + line + "\n";
    }
  }
  return text;
}

}  // namespace cli
