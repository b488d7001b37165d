#include "agent/watch/folder_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/fd.h"

namespace agent::watch {

FilePart read_part(const std::filesystem::path& file, std::uint64_t offset, std::size_t most) {
  const base::Fd fd(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));  // a pipe would be waited for
  FilePart part;
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return part;
  part.size = static_cast<std::uint64_t>(status.st_size);
  part.bytes.resize(std::min<std::uint64_t>(most, part.size - std::min(offset, part.size)));
  std::size_t done = 0;
  while (done < part.bytes.size()) {
    const auto count =
        ::pread(fd.get(), part.bytes.data() + done, part.bytes.size() - done, static_cast<off_t>(offset + done));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  part.bytes.resize(done);
  return part;
}

namespace {

bool is_special(char c) {
  return c == '*' || c == '?' || c == '[';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// The longest run of digits that the group can have matched; empty: none.
std::string digits_of(const std::array<std::string, 3>& parts, const std::string& name) {
  const auto fits = [](const std::string& pattern, const std::string& text) {
    return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
  };
  std::string found;
  for (std::size_t begin = 0; begin < name.size(); ++begin) {
    if (!is_digit(name[begin]) || (begin > 0 && is_digit(name[begin - 1]))) continue;
    auto end = begin;
    while (end < name.size() && is_digit(name[end])) ++end;
    if (end - begin <= found.size()) continue;
    const auto digits = name.substr(begin, end - begin);
    if (fits(parts[0], name.substr(0, begin)) && fits(parts[1], digits) && fits(parts[2], name.substr(end))) {
      found = digits;
    }
  }
  return found;
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
    if (name.is_pattern && !has_group_) find_group(name);
    names_.push_back(std::move(name));
  }
}

/// Takes the brackets out of a name's pattern.
void Wildcards::find_group(Name& name) {
  const auto& text = name.text;
  std::size_t open = std::string::npos;
  bool is_pattern = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '(') {
      open = at;
      is_pattern = false;
    } else if (text[at] == ')' && open != std::string::npos && is_pattern) {
      name.parts = {text.substr(0, open), text.substr(open + 1, at - open - 1), text.substr(at + 1)};
      name.text = (*name.parts)[0] + (*name.parts)[1] + (*name.parts)[2];
      has_group_ = true;
      return;
    } else {
      is_pattern = is_pattern || is_special(text[at]);
    }
  }
}

std::vector<Wildcards::Match> Wildcards::find(std::size_t& budget) const {
  std::vector<Match> out;
  search({}, 0, budget, out);
  return out;
}

void Wildcards::search(const Match& so_far, std::size_t depth, std::size_t& budget, std::vector<Match>& out) const {
  const auto& folder = so_far.path;
  if (depth == names_.size()) {
    struct stat status {};
    if (depth > 0 && ::stat(folder.c_str(), &status) == 0) out.push_back(so_far);
    return;
  }
  const auto& [text, is_pattern, parts] = names_[depth];
  if (!is_pattern) return search({folder + "/" + text, so_far.name, so_far.group}, depth + 1, budget, out);
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.empty() ? "/" : folder.c_str()), ::closedir);
  if (!open) return;
  for (const dirent* entry = ::readdir(open.get()); entry != nullptr && budget > 0; entry = ::readdir(open.get())) {
    const std::string name = entry->d_name;
    --budget;
    if (name == "." || name == ".." || ::fnmatch(text.c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
    search({folder + "/" + name, name, parts ? digits_of(*parts, name) : so_far.group}, depth + 1, budget, out);
  }
}

std::string Wildcards::plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (is_special(c) || c == '\\' || c == '(') out += '\\';
    out += c;
  }
  return out;
}

void walk_folder(const std::string& folder, int depth, Links links, std::size_t& budget,
                 const std::function<void(const FolderEntry&)>& visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (!open) return;
  for (const dirent* one = ::readdir(open.get()); one != nullptr && budget > 0; one = ::readdir(open.get())) {
    FolderEntry entry{.path = {}, .name = one->d_name};
    if (entry.name == "." || entry.name == "..") continue;
    --budget;
    entry.path = folder + "/" + entry.name;
    const auto look = links == Links::kFollowed ? ::stat : ::lstat;
    if (look(entry.path.c_str(), &entry.status) != 0) continue;
    visit(entry);
    if (S_ISDIR(entry.status.st_mode) && depth > 1) walk_folder(entry.path, depth - 1, links, budget, visit);
  }
}

std::int64_t changed_ns(const struct stat& status) {
  return status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
}

}  // namespace agent::watch
