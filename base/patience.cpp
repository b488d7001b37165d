#include "base/patience.h"

#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/signals_blocked.h"

namespace base {
namespace {

/// How many are under way, of whom.
class Begun {
 public:
  bool begin(const std::string& whom) {
    std::lock_guard lock(mutex_);
    if (auto& count = counts_[whom]; count < kMostStuck) {
      ++count;
      return true;
    }
    return false;
  }
  void end(const std::string& whom) {
    std::lock_guard lock(mutex_);
    if (--counts_[whom] == 0) counts_.erase(whom);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;
};

// Never destroyed: threads that are left behind may end after main() has.
Begun& begun() {
  static auto& counts = *new Begun;
  return counts;
}

/// "\040" stands for a space there.
std::string without_octals(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto digit = [&](std::size_t n) {
      return at + n < text.size() && text[at + n] >= '0' && text[at + n] <= '7';
    };
    if (text[at] == '\\' && digit(1) && digit(2) && digit(3)) {
      out += static_cast<char>((text[at + 1] - '0') * 64 + (text[at + 2] - '0') * 8 + (text[at + 3] - '0'));
      at += 3;
    } else {
      out += text[at];
    }
  }
  return out;
}

bool is_below(const std::string& folder, const std::string& path) {
  return folder == "/" || (path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/'));
}

}  // namespace

std::string file_system_of(const std::filesystem::path& path, std::istream& mountinfo) {
  const auto wanted = path.lexically_normal().string();
  std::string found = "/";
  for (std::string line; std::getline(mountinfo, line);) {
    std::istringstream fields(line);
    std::string id, parent, device, root, place;
    if (!(fields >> id >> parent >> device >> root >> place)) continue;
    place = without_octals(place);
    if (is_below(place, wanted) && place.size() >= found.size()) found = place;
  }
  return found;
}

std::string file_system_of(const std::filesystem::path& path) {
  std::ifstream mountinfo("/proc/self/mountinfo");
  return file_system_of(path, mountinfo);
}

bool run_within(std::chrono::milliseconds patience, const std::string& whom, std::function<void()> task) {
  if (!begun().begin(whom)) return false;
  const auto ended = std::make_shared<std::promise<void>>();
  auto end = ended->get_future();
  try {
    const SignalsBlocked quiet;
    std::thread([ended, whom, task = std::move(task)] {
      task();
      begun().end(whom);
      ended->set_value();
    }).detach();
  } catch (const std::system_error&) {  // no room for a thread
    begun().end(whom);
    return false;
  }
  return end.wait_for(patience) == std::future_status::ready;
}

}  // namespace base
