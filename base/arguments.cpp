#include "base/arguments.h"

#include <algorithm>

#include "base/usage_error.h"
#include "base/words.h"

namespace base {
namespace {

const Option& option_of(const std::string& name, std::span<const Option> known) {
  const auto found = std::ranges::find_if(
      known, [&](const Option& option) { return name == option.name || (name == option.alias && !name.empty()); });
  if (found != known.end()) return *found;
  std::vector<std::string> names;
  for (const Option& option : known) names.emplace_back(option.name);
  const std::string text = "there is no option " + valid_utf8(name);
  if (const std::string near = nearest(name, names); !near.empty()) throw UsageError(text + ", did you mean " + near);
  throw UsageError(text + (names.empty() ? "" : "; want one of " + joined(names)));
}

}  // namespace

const std::string* Arguments::find(std::string_view name) const {
  const auto found = std::ranges::find(options, name, &std::pair<std::string, std::string>::first);
  return found == options.end() ? nullptr : &found->second;
}

Arguments read_arguments(std::span<const std::string> arguments, std::span<const Option> known) {
  Arguments out;
  bool only_words = false;  // behind "--"
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (only_words || argument == "-" || !argument.starts_with("-")) {
      out.words.push_back(argument);
    } else if (argument == "--") {
      only_words = true;
    } else if (argument == "--help" || argument == "-h") {
      out.help = true;
    } else {
      const auto equals = argument.find('=');
      const Option& option = option_of(argument.substr(0, equals), known);
      const std::string name(option.name);
      if (out.has(name)) throw UsageError(name + " is given twice; give it once");
      const bool has_value = equals != std::string::npos;
      if (has_value && !option.takes_value) throw UsageError(argument + ": " + name + " takes no value");
      if (option.takes_value && !has_value && i + 1 == arguments.size()) throw UsageError(name + " wants a value");
      std::string value = has_value ? argument.substr(equals + 1) : option.takes_value ? arguments[++i] : "";
      out.options.emplace_back(name, std::move(value));
    }
  }
  return out;
}

Arguments read_arguments(int argc, char** argv, std::span<const Option> known) {
  return read_arguments(std::vector<std::string>(argv + 1, argv + argc), known);
}

}  // namespace base
