#include "spec/variables.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/words.h"

namespace spec {
namespace {

constexpr std::array<std::string_view, 10> kEndings{"token",      "secret",     "secrets",     "password", "passwd",
                                                    "passphrase", "credential", "credentials", "key",      "keys"};

bool is_named_so(std::string_view name) {
  const auto parts = base::split(base::lower_case(name), '_');
  if (parts == std::vector<std::string>{"pwd"}) return false;
  if (!parts.empty() && parts.back() == "auth") return true;
  return std::ranges::any_of(parts, [](const std::string& part) {
    const auto ends_so = [&](std::string_view ending) { return part.ends_with(ending); };
    return part == "pass" || part == "pwd" || std::ranges::any_of(kEndings, ends_so);
  });
}

/// "scheme://user:password@host"; of http also "https://token@host": nobody has a name there but for a password.
bool has_password(std::string_view value) {
  const auto scheme = value.find("://");
  if (scheme == std::string_view::npos) return false;
  const auto before = value.substr(0, scheme);
  const auto rest = value.substr(scheme + 3);
  const auto authority = rest.substr(0, rest.find('/'));
  const auto at = authority.rfind('@');
  if (at == std::string_view::npos) return false;
  if (authority.substr(0, at).find(':') != std::string_view::npos) return true;
  const bool is_web = before.ends_with("http") || before.ends_with("https");
  return is_web && authority.substr(0, at).find_first_of("?#") == std::string_view::npos;
}

}  // namespace

bool is_secret(std::string_view name, std::string_view value) {
  return !value.empty() && (is_named_so(name) || has_password(value));
}

std::string shown_value(std::string_view name, const std::string& value) {
  return is_secret(name, value) ? std::string(kMask) : value;
}

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
