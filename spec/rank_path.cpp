#include "spec/rank_path.h"

#include <cctype>

namespace spec {
namespace {

/// The name of a variable at the beginning of the text; empty: there is none.
std::string name_at(const std::string& text, std::size_t at) {
  std::size_t end = at;
  const auto is_part = [&](char c) {
    return c == '_' || std::isalpha(static_cast<unsigned char>(c)) != 0 ||
           (end > at && std::isdigit(static_cast<unsigned char>(c)) != 0);
  };
  while (end < text.size() && is_part(text[end])) ++end;
  return text.substr(at, end - at);
}

}  // namespace

RankPath expand_rank_path(const std::string& text,
                          const std::function<std::optional<std::string>(const std::string&)>& value_of) {
  RankPath out;
  for (std::size_t at = 0; at < text.size();) {
    const bool braces = text.compare(at, 2, "${") == 0;
    const auto name = text[at] == '$' ? name_at(text, at + (braces ? 2 : 1)) : std::string();
    if (braces && (name.empty() || text.compare(at + 2 + name.size(), 1, "}") != 0)) {
      out.problem = "want ${NAME} with the name of a variable";
      return out;
    }
    if (name.empty()) {
      out.path += text[at++];
      continue;
    }
    const auto value = value_of(name);
    if (!value && out.problem.empty()) out.problem = "the variable " + name + " is not set";
    out.path += value.value_or("");
    at += name.size() + (braces ? 3 : 1);
  }
  return out;
}

}  // namespace spec
