#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace base {

/// An option of a program: "--seed N", or "--json" without a value.
struct Option {
  std::string_view name;
  bool takes_value = true;
  std::string_view alias = {};  // a second name, such as "-f"
};

/// The arguments of a program, or of its command.
struct Arguments {
  std::vector<std::string> words;                            // those that belong to no option
  std::vector<std::pair<std::string, std::string>> options;  // in their order; no value: ""
  bool help = false;                                         // --help or -h

  /// The value of the option; null: it is not given.
  const std::string* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
};

/// Reads options in any order, as "--seed 3" and "--seed=3". Behind "--" there are only words, and "-" is one.
/// Throws UsageError for an option that is not in `known`, is given twice, lacks its value or takes none. With --help
/// it reads on, and throws all the same.
Arguments read_arguments(std::span<const std::string> arguments, std::span<const Option> known);
/// Reads the arguments of main(): all behind the program's name.
Arguments read_arguments(int argc, char** argv, std::span<const Option> known);

}  // namespace base
