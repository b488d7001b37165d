#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace cli {

/// The unit of `systemd --user` that runs the musterd of one data folder. With it musterd comes back after a crash and
/// after a reboot. systemctl and loginctl are found in PATH.
class UserService {
 public:
  /// Asks nothing and writes nothing.
  explicit UserService(const std::filesystem::path& data_folder);

  /// "muster.service", or for another data folder than the usual one "muster-<checksum of its path>.service".
  const std::string& name() const { return name_; }
  const std::filesystem::path& file() const { return file_; }
  bool is_written() const;

  /// Why no unit can run musterd; empty: one can. Without lingering the user's manager ends with the last login, and
  /// takes every running job along, so this asks for lingering where it is off.
  std::string why_not() const;
  /// Writes the unit, and lets the manager start it now and at each boot. Throws a Failure, and leaves no unit then.
  void start(const std::vector<std::string>& command, const std::filesystem::path& log) const;
  /// The process of musterd; 0: the manager runs none.
  std::int64_t main_pid() const;
  /// True if the manager has given up on it, or waits before it starts it again.
  bool has_failed() const;
  /// Ends musterd alone, and lets the manager start it no more. The unit stays. Throws a Failure.
  void stop() const;
  /// stop(), and removes the unit. Throws a Failure.
  void remove() const;

  /// The text of the unit. Pure.
  static std::string unit_text(const std::vector<std::string>& command, const std::filesystem::path& log,
                               const std::vector<std::pair<std::string, std::string>>& environment);

 private:
  std::string name_;
  std::filesystem::path file_;
};

}  // namespace cli
