#include "cli/user_service.h"

#include <cstdlib>
#include <utility>

#include "base/checksum.h"
#include "base/command.h"
#include "base/durable_file.h"
#include "base/numbers.h"
#include "base/words.h"
#include "cli/cli_command.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

/// systemctl waits until musterd has ended: TimeoutStopSec of the unit, and a little.
constexpr std::chrono::seconds kSystemdPatience{45};
/// musterd looks for Slurm's programs in PATH. The manager's own PATH lacks what modules and shells have added.
constexpr const char* kPassedOn[]{"PATH", "SLURM_CONF", "LD_LIBRARY_PATH"};

base::CommandResult ask_systemd(std::vector<std::string> words) {
  return base::ProcessRunner().run({.argv = std::move(words), .time_limit = kSystemdPatience});
}

std::string words_of(const base::CommandResult& result) {
  if (!result.could_not_start.empty()) return result.could_not_start;
  if (result.timed_out) return "no answer within " + std::to_string(kSystemdPatience.count()) + " s";
  return std::string(base::trimmed(result.err.empty() ? result.out : result.err));
}

void must_do(std::vector<std::string> words) {
  const auto name = base::joined(words, " ");
  const auto result = ask_systemd(std::move(words));
  if (!result.succeeded()) throw Failure(kUsage, name + ": " + words_of(result));
}

std::string property_of(const std::string& unit, const char* name) {
  const auto result = ask_systemd({"systemctl", "--user", "show", unit, std::string("--property=") + name, "--value"});
  return std::string(base::trimmed(result.out));
}

/// A word of a unit, in quotes. `%` begins a specifier there, and `$` a variable of a command.
std::string quoted_word(const std::string& word, bool is_command) {
  std::string out = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '%' || (is_command && c == '$')) out += c;
    out += c;
  }
  return out + "\"";
}

}  // namespace

UserService::UserService(const fs::path& data_folder) {
  const auto places = usual_places();
  base::Checksum sum;
  sum.add(data_folder.native());
  name_ = data_folder == usual_data_folder(places).value ? "muster.service" : "muster-" + sum.hex() + ".service";
  const auto configuration = places.variable("XDG_CONFIG_HOME");
  const auto home = fs::path(places.variable("HOME").value_or("/"));
  file_ = (configuration ? fs::path(*configuration) : home / ".config") / "systemd/user" / name_;
}

bool UserService::is_written() const {
  std::error_code ignored;
  return fs::exists(file_, ignored);
}

std::string UserService::why_not() const {
  if (!base::find_in_path("systemctl")) return "there is no systemctl";
  if (const auto manager = ask_systemd({"systemctl", "--user", "show-environment"}); !manager.succeeded()) {
    return "no systemd --user runs here (" + words_of(manager) + ")";
  }
  const auto lingers = [] {
    const auto answer = ask_systemd({"loginctl", "show-user", user_name(), "--property=Linger", "--value"});
    return base::trimmed(answer.out) == "yes";
  };
  if (lingers()) return {};
  const auto wish = ask_systemd({"loginctl", "enable-linger"});
  if (wish.succeeded() && lingers()) return {};
  return "systemd --user ends with your last login, and loginctl enable-linger was refused (" + words_of(wish) + ")";
}

std::string UserService::unit_text(const std::vector<std::string>& command, const fs::path& log,
                                   const std::vector<std::pair<std::string, std::string>>& environment) {
  std::string words;
  for (const auto& word : command) base::append(words, quoted_word(word, true), " ");
  std::string variables;
  for (const auto& [name, value] : environment)
    variables += "Environment=" + quoted_word(name + "=" + value, false) + "\n";
  return "# Written by muster up. muster down stops it, and muster uninstall removes it.\n"
         "[Unit]\n"
         "Description=muster: submits, watches and requeues jobs of this user\n"
         "# A start that fails again and again, such as that of a folder in use on another machine, is given up.\n"
         "StartLimitIntervalSec=60\n"
         "StartLimitBurst=10\n"
         "[Service]\n"
         "ExecStart=" +
         words + "\n" + variables + "StandardError=append:" + base::replaced(log.native(), "%", "%%") +
         "\n"
         "# The agents of running jobs are in this unit's control group, and outlive musterd.\n"
         "KillMode=process\n"
         "TimeoutStopSec=30\n"
         "Restart=on-failure\n"
         "RestartSec=2\n"
         "# musterd was started in a wrong way, so that the next start would end the same.\n"
         "RestartPreventExitStatus=2\n"
         "UMask=0077\n"
         "[Install]\n"
         "WantedBy=default.target\n";
}

void UserService::start(const std::vector<std::string>& command, const fs::path& log) const {
  std::vector<std::pair<std::string, std::string>> environment;
  for (const char* name : kPassedOn) {
    if (const char* value = std::getenv(name); value != nullptr) environment.emplace_back(name, value);
  }
  base::make_folders(file_.parent_path());
  base::write_file_durably(file_, unit_text(command, log, environment));
  try {
    must_do({"systemctl", "--user", "daemon-reload"});
    must_do({"systemctl", "--user", "enable", "--now", name_});
  } catch (const Failure&) {
    std::error_code ignored;
    fs::remove(file_, ignored);
    ask_systemd({"systemctl", "--user", "daemon-reload"});
    throw;
  }
}

std::int64_t UserService::main_pid() const {
  return is_written() ? base::whole_number<std::int64_t>(property_of(name_, "MainPID")).value_or(0) : 0;
}

bool UserService::has_failed() const {
  const auto state = property_of(name_, "ActiveState");
  return state == "failed" || state == "inactive" || property_of(name_, "SubState") == "auto-restart";
}

void UserService::stop() const {
  must_do({"systemctl", "--user", "disable", "--now", name_});
}

void UserService::remove() const {
  stop();
  fs::remove(file_);
  ask_systemd({"systemctl", "--user", "daemon-reload"});
}

}  // namespace cli
