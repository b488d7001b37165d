#include "data/prepare/text/roff.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace data::prepare {
namespace {

std::optional<char> special_character(std::string_view name) {
  struct Entry {
    std::string_view name;
    char is;
  };
  static constexpr std::array<Entry, 24> kTable = {
      {{"em", '-'}, {"en", '-'}, {"hy", '-'}, {"mi", '-'}, {"bu", '*'}, {"aq", '\''}, {"cq", '\''}, {"oq", '\''},
       {"dq", '"'}, {"lq", '"'}, {"rq", '"'}, {"ga", '`'}, {"ha", '^'}, {"ti", '~'},  {"rs", '\\'}, {"pl", '+'},
       {"eq", '='}, {"sl", '/'}, {"ba", '|'}, {"at", '@'}, {"sh", '#'}, {"ul", '_'},  {"<=", '<'},  {">=", '>'}}};
  for (const auto& entry : kTable) {
    if (entry.name == name) return entry.is;
  }
  return std::nullopt;
}

/// Reads the name after an escape that takes one: X, (XX or [name]. Moves `at` past the name.
std::string_view escape_name(std::string_view line, std::size_t& at) {
  if (at >= line.size()) return {};
  if (line[at] == '(') {
    const auto name = line.substr(at + 1, 2);
    at = std::min(at + 3, line.size());
    return name;
  }
  if (line[at] == '[') {
    const auto close = std::min(line.find(']', at), line.size());
    const auto name = line.substr(at + 1, close - at - 1);
    at = std::min(close + 1, line.size());
    return name;
  }
  return line.substr(at++, 1);
}

/// Skips a quoted argument such as the 'x' of \h'x'.
void skip_quoted(std::string_view line, std::size_t& at) {
  if (at >= line.size()) return;
  const auto close = line.find(line[at], at + 1);
  at = close == std::string_view::npos ? line.size() : close + 1;
}

/// Handles the escape whose letter is at `at`. Returns false when the rest of the line is a comment.
bool append_escape(std::string_view line, std::size_t& at, std::string& out) {
  const char kind = line[at++];
  switch (kind) {
    case '"':
    case '#':
      return false;
    case 'f':
    case 'F':
    case 'm':
    case 'M':
    case 'n':
    case 'k':
      escape_name(line, at);
      break;
    case '*': {
      const auto name = escape_name(line, at);
      if (const auto c = special_character(name)) out += *c;
      break;
    }
    case '(':
    case '[': {
      --at;
      const auto name = escape_name(line, at);
      if (const auto c = special_character(name)) out += *c;
      break;
    }
    case 's': {
      if (at < line.size() && (line[at] == '+' || line[at] == '-')) ++at;
      escape_name(line, at);
      break;
    }
    case 'h':
    case 'v':
    case 'w':
    case 'l':
    case 'L':
    case 'o':
    case 'D':
    case 'X':
    case 'N':
    case 'b':
    case 'x':
    case 'S':
      skip_quoted(line, at);
      break;
    case '~':
    case '0':
    case ' ':
    case 't':
      out += ' ';
      break;
    case '-':
      out += '-';
      break;
    case 'e':
    case '\\':
      out += '\\';
      break;
    case '\'':
    case '`':
    case '.':
    case '_':
      out += kind;
      break;
    default:
      break;  // \& \| \^ \, \/ \: \% \c \d \u \p \{ \} and unknown escapes print nothing
  }
  return true;
}

std::string plain(std::string_view line) {
  std::string out;
  for (std::size_t at = 0; at < line.size();) {
    if (line[at] != '\\') {
      out += line[at++];
    } else if (++at < line.size() && !append_escape(line, at, out)) {
      break;
    }
  }
  return out;
}

/// A macro's arguments, separated by blanks. "..." groups words; "" inside a group is a quote.
std::vector<std::string> arguments(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || text[at] == '\t') {
      ++at;
      continue;
    }
    std::string word;
    if (text[at] == '"') {
      for (++at; at < text.size(); ++at) {
        if (text[at] != '"') {
          word += text[at];
        } else if (at + 1 < text.size() && text[at + 1] == '"') {
          word += text[at++];
        } else {
          break;
        }
      }
      if (at < text.size()) ++at;
    } else {
      while (at < text.size() && text[at] != ' ' && text[at] != '\t') {
        if (text[at] == '\\' && at + 1 < text.size()) word += text[at++];
        word += text[at++];
      }
    }
    out.push_back(std::move(word));
  }
  return out;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_mdoc(std::string_view name) {
  return name.size() == 2 && name[0] >= 'A' && name[0] <= 'Z' && name[1] >= 'a' && name[1] <= 'z';
}

class Page {
 public:
  void line(std::string_view raw) {
    if (ignoring_) {
      if (raw.starts_with("..")) ignoring_ = false;
      return;
    }
    if (raw.empty()) {
      paragraph();
    } else if (raw[0] == '.' || raw[0] == '\'') {
      macro(raw.substr(1));
    } else {
      words(plain(raw), true);
    }
  }

  std::string take() {
    paragraph();
    return std::move(text_);
  }

 private:
  void break_line() {
    if (!text_.empty() && text_.back() != '\n') text_ += '\n';
  }

  void paragraph() {
    break_line();
    if (text_.size() >= 2 && text_[text_.size() - 2] != '\n') text_ += '\n';
  }

  void words(std::string_view line, bool space) {
    if (line.empty()) return;
    if (as_is_) {
      text_ += line;
      text_ += '\n';
      return;
    }
    if (space && !text_.empty() && text_.back() != '\n' && text_.back() != ' ') text_ += ' ';
    text_ += line;
  }

  void joined(const std::vector<std::string>& list, bool spaces) {
    std::string line;
    for (const auto& word : list) {
      if (spaces && !line.empty()) line += ' ';
      line += plain(word);
    }
    words(line, true);
  }

  void mdoc(std::string_view name, const std::vector<std::string>& list) {
    if (is_one_of(name, {"Dd", "Dt", "Os", "Bd", "Bl", "Ed", "El", "Rs", "Re", "Ns", "Sm"})) return break_line();
    std::string line = name == "Fl" ? "-" : name == "Nd" ? "- " : "";
    for (const auto& word : list) {
      if (word == "Fl") {
        line += '-';
      } else if (!is_mdoc(word)) {
        if (!line.empty() && line.back() != '-') line += ' ';
        line += plain(word);
      }
    }
    words(line, true);
  }

  void macro(std::string_view rest) {
    while (!rest.empty() && (rest[0] == ' ' || rest[0] == '\t')) rest.remove_prefix(1);
    const auto space = rest.find_first_of(" \t");
    const auto name = rest.substr(0, space);
    if (name.empty() || name.starts_with("\\\"")) return;
    const auto list = arguments(space == std::string_view::npos ? std::string_view{} : rest.substr(space));
    if (is_one_of(name, {"SH", "SS", "Sh", "Ss"})) {
      as_is_ = false;
      paragraph();
      joined(list, true);
      break_line();
    } else if (is_one_of(name, {"PP", "P", "LP", "Pp", "sp", "TP", "TQ", "HP"})) {
      paragraph();
    } else if (is_one_of(name, {"IP", "It"})) {
      paragraph();
      if (!list.empty()) words(plain(name == "IP" ? list[0] : ""), true);
      if (name == "It") mdoc(name, list);
      break_line();
    } else if (is_one_of(name, {"B", "I", "SM", "SB"})) {
      joined(list, true);
    } else if (is_one_of(name, {"BR", "RB", "BI", "IB", "IR", "RI"})) {
      joined(list, false);
    } else if (is_one_of(name, {"nf", "EX", "fi", "EE", "br"})) {
      break_line();
      if (name != "br") as_is_ = name == "nf" || name == "EX";
    } else if (is_one_of(name, {"de", "ig", "am", "de1", "TS"})) {
      ignoring_ = name != "TS";
    } else if (is_mdoc(name)) {
      mdoc(name, list);
    }
  }

  std::string text_;
  bool as_is_ = false;     ///< inside an example: lines are kept unchanged
  bool ignoring_ = false;  ///< inside a macro definition
};

}  // namespace

std::string roff_to_text(std::string_view source) {
  Page page;
  while (!source.empty()) {
    const auto end = source.find('\n');
    auto line = source.substr(0, end);
    source = end == std::string_view::npos ? std::string_view{} : source.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with(".so ")) return {};
    page.line(line);
  }
  return page.take();
}

}  // namespace data::prepare
