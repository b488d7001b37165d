#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace beside {

/// A path whose names may have the wildcards of a shell: *, ? and [...]. A "\" makes the next character plain.
class Wildcards {
 public:
  struct Match {
    std::string path;
    std::string name;  // what the last name with a wildcard matched; empty: no name has one
  };

  /// `pattern` is absolute.
  explicit Wildcards(const std::string& pattern);

  /// Paths that are there, in no order. At most `budget` entries of folders are read; what is left of it comes back. A
  /// name that begins with a dot matches only a pattern that does.
  std::vector<Match> find(std::size_t& budget) const;

  /// `text` as a pattern that matches it alone.
  static std::string plain(const std::string& text);

 private:
  struct Name {
    std::string text;  // the pattern, or the plain name
    bool is_pattern = false;
  };
  void search(const std::string& folder, std::size_t depth, const std::string& matched, std::size_t& budget,
              std::vector<Match>& out) const;

  std::vector<Name> names_;
};

}  // namespace beside
