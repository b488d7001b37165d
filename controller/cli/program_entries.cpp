#include "cli/program_entries.h"

#include <algorithm>
#include <map>
#include <string>

#include "cli/entries.h"
#include "jobfile/job_file_text.h"

namespace cli {
namespace {

using Map = google::protobuf::Map<std::string, std::string>;

/// Prints one variable a line. The first line has the label.
void print_variables(std::string label, const Map& variables) {
  for (const auto& [name, value] : std::map<std::string, std::string>(variables.begin(), variables.end())) {
    const bool plain = std::ranges::none_of(value, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
    print_path(label, name + "=" + (plain ? value : jobfile::toml_text(value)));
    label.clear();
  }
}

}  // namespace

std::string shell_word(const std::string& text) {
  const auto safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("@%+=:,./-_").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, safe)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\"'\"'") : std::string(1, c);
  return quoted + "'";
}

void print_program(const muster::v1::JobSpec& spec) {
  std::string command;
  for (const auto& word : spec.command().argv()) command += (command.empty() ? "" : " ") + shell_word(word);
  print_path("command", command);
  if (spec.has_command()) print_path("folder", spec.working_folder());
  print_path("job file", spec.job_file());
  if (spec.has_command() && !spec.environment().empty()) {
    print_entry("environment", spec.environment() == "clean" ? "clean: as after a fresh login"
                               : spec.submitted_env().empty()
                                   ? "submit: as after a fresh login; nothing taken from the submitter"
                                   : "submit: as after a fresh login, with variables from the submitter");
    print_variables("", spec.submitted_env());
  }
  print_variables("env", spec.env());
}

}  // namespace cli
