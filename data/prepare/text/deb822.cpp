#include "data/prepare/text/deb822.h"

#include <algorithm>

namespace data::prepare {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equal_names(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// Takes the next line from the front, without its end.
std::string_view next_line(std::string_view& text) {
  const auto end = text.find('\n');
  const auto line = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  return line;
}

}  // namespace

std::string_view Deb822Paragraph::operator[](std::string_view name) const {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return equal_names(field.name, name); });
  return found == fields.end() ? std::string_view{} : found->value;
}

void for_paragraphs(std::string_view text, const std::function<void(const Deb822Paragraph&)>& take) {
  Deb822Paragraph paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.fields.empty()) take(paragraph);
    paragraph.fields.clear();
  };
  while (!text.empty()) {
    const auto line = next_line(text);
    if (trim(line).empty()) {
      end_paragraph();
    } else if (line[0] == '#') {
      continue;
    } else if (line[0] == ' ' || line[0] == '\t') {
      if (paragraph.fields.empty()) continue;
      // All lines of a field lie one after another in `text`, but for comments between them.
      auto& value = paragraph.fields.back().value;
      value = {value.data(), static_cast<std::size_t>(line.data() + line.size() - value.data())};
    } else if (const auto colon = line.find(':'); colon != std::string_view::npos && colon > 0) {
      auto value = line.substr(colon + 1);
      value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
      paragraph.fields.push_back({line.substr(0, colon), value});
    }
  }
  end_paragraph();
}

std::string folded_text(std::string_view value) {
  std::string out;
  bool first = true;
  while (!value.empty()) {
    auto line = next_line(value);
    if (!first && line.starts_with('#')) continue;
    if (!first) out += '\n';
    if (!first && !line.empty()) line.remove_prefix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (first || trim(line) != ".") out += line;
    first = false;
  }
  return out;
}

}  // namespace data::prepare
