#include "cli/entries.h"

#include <algorithm>
#include <iostream>

#include "cli/terminal.h"
#include "cli/text.h"

namespace cli {
namespace {

constexpr std::size_t kLabelWidth = 13;

std::string lead_of(const std::string& label) {
  return "  " + label + std::string(std::max(kLabelWidth, label.size() + 1) - label.size(), ' ');
}

}  // namespace

void print_entry(const std::string& label, const std::string& text) {
  if (text.empty()) return;
  auto lead = lead_of(label);
  for (const auto& line : wrapped(text, table_columns() - lead.size())) {
    std::cout << lead << line << "\n";
    lead.assign(lead.size(), ' ');
  }
}

void print_path(const std::string& label, const std::string& path) {
  if (!path.empty()) std::cout << lead_of(label) << path << "\n";
}

}  // namespace cli
