#include "controller/partitions/user_groups.h"

#include <grp.h>
#include <pwd.h>

#include <array>
#include <cerrno>

namespace partitions {
namespace {

// Entries of a directory service may be large: the buffer grows up to a megabyte.
constexpr std::size_t kFirstBuffer = 4096;
constexpr std::size_t kLargestBuffer = 1 << 20;

template <typename Ask>
void with_buffer(Ask ask) {
  for (std::vector<char> buffer(kFirstBuffer); buffer.size() <= kLargestBuffer; buffer.resize(2 * buffer.size())) {
    if (ask(buffer) != ERANGE) return;
  }
}

std::string group_name(gid_t id) {
  std::string name;
  with_buffer([&](std::vector<char>& buffer) {
    struct group entry {};
    struct group* found = nullptr;
    const int error = ::getgrgid_r(id, &entry, buffer.data(), buffer.size(), &found);
    if (error == 0 && found != nullptr) name = found->gr_name;
    return error;
  });
  return name;
}

}  // namespace

std::vector<std::string> groups_of(const std::string& user) {
  gid_t own = 0;
  bool known = false;
  with_buffer([&](std::vector<char>& buffer) {
    struct passwd entry {};
    struct passwd* found = nullptr;
    const int error = ::getpwnam_r(user.c_str(), &entry, buffer.data(), buffer.size(), &found);
    known = error == 0 && found != nullptr;
    if (known) own = found->pw_gid;
    return error;
  });
  if (!known) return {};
  std::vector<gid_t> ids(kMostGroups);
  int count = kMostGroups;
  if (::getgrouplist(user.c_str(), own, ids.data(), &count) < 0) count = kMostGroups;
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    if (auto name = group_name(ids[static_cast<std::size_t>(i)]); !name.empty()) names.push_back(std::move(name));
  }
  return names;
}

std::vector<std::string> UserGroups::of(const std::string& user) {
  const auto now = clock_.monotonic();
  {
    std::lock_guard lock(mutex_);
    const auto found = known_.find(user);
    if (found != known_.end() && now < found->second.until) return found->second.groups;
  }
  auto groups = ask_(user);
  std::lock_guard lock(mutex_);
  if (known_.size() >= kMostUsers) known_.clear();
  known_[user] = {now + kRemembered, groups};
  return groups;
}

}  // namespace partitions
