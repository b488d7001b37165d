#include "spec/submitter.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace spec {

Environment own_environment() {
  Environment all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == 0 || equals == std::string_view::npos) continue;
    all.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return all;
}

bool is_taken(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames{"PATH", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH"};
  return std::ranges::find(kNames, name) != kNames.end() || name.starts_with("CONDA_");
}

Environment taken_from(const Environment& submitter) {
  Environment taken;
  for (const auto& [name, value] : submitter) {
    if (is_taken(name)) taken.emplace(name, value);
  }
  return taken;
}

}  // namespace spec
