#include "beside/wildcards.h"

#include <dirent.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include <memory>

namespace beside {
namespace {

bool is_special(char c) {
  return c == '*' || c == '?' || c == '[';
}

}  // namespace

Wildcards::Wildcards(const std::string& pattern) {
  for (std::size_t at = 0; at < pattern.size();) {
    const auto end = std::min(pattern.find('/', at), pattern.size());
    const auto text = pattern.substr(at, end - at);
    at = end + 1;
    if (text.empty() || text == ".") continue;
    Name name;
    std::string unescaped;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\\' && i + 1 < text.size()) {
        unescaped += text[++i];
      } else {
        name.is_pattern = name.is_pattern || is_special(text[i]);
        unescaped += text[i];
      }
    }
    name.text = name.is_pattern ? text : unescaped;
    names_.push_back(std::move(name));
  }
}

std::vector<Wildcards::Match> Wildcards::find(std::size_t& budget) const {
  std::vector<Match> out;
  search("", 0, "", budget, out);
  return out;
}

void Wildcards::search(const std::string& folder, std::size_t depth, const std::string& matched, std::size_t& budget,
                       std::vector<Match>& out) const {
  if (depth == names_.size()) {
    struct stat status {};
    if (depth > 0 && ::stat(folder.c_str(), &status) == 0) out.push_back({folder, matched});
    return;
  }
  const auto& [text, is_pattern] = names_[depth];
  if (!is_pattern) return search(folder + "/" + text, depth + 1, matched, budget, out);
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.empty() ? "/" : folder.c_str()), ::closedir);
  if (!open) return;
  for (const dirent* entry = ::readdir(open.get()); entry != nullptr && budget > 0; entry = ::readdir(open.get())) {
    const std::string name = entry->d_name;
    --budget;
    if (name == "." || name == ".." || ::fnmatch(text.c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
    search(folder + "/" + name, depth + 1, name, budget, out);
  }
}

std::string Wildcards::plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (is_special(c) || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace beside
