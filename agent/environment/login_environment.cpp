#include "agent/environment/login_environment.h"

#include <pwd.h>
#include <unistd.h>

#include <vector>

namespace agent::environment {
namespace {

constexpr const char* kPath = "/usr/local/bin:/usr/bin:/bin";
constexpr const char* kRootsPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr std::size_t kMostEntry = std::size_t{1} << 20;

void add_user(spec::Environment& to) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> texts(1024);
  while (::getpwuid_r(::geteuid(), &entry, texts.data(), texts.size(), &found) == ERANGE && texts.size() < kMostEntry) {
    texts.resize(2 * texts.size());
  }
  const auto name = found != nullptr ? std::string(found->pw_name) : std::to_string(::geteuid());
  to["USER"] = to["LOGNAME"] = name;
  to["HOME"] = found != nullptr && *found->pw_dir != 0 ? found->pw_dir : "/";
  to["SHELL"] = found != nullptr && *found->pw_shell != 0 ? found->pw_shell : "/bin/sh";
}

spec::Environment ask() {
  spec::Environment all{
      {"PATH", ::geteuid() == 0 ? kRootsPath : kPath}, {"LANG", "C.UTF-8"}, {"PYTHONUNBUFFERED", "1"}};
  add_user(all);
  return all;
}

}  // namespace

const spec::Environment& login_environment() {
  static const spec::Environment kAsked = ask();
  return kAsked;
}

}  // namespace agent::environment
