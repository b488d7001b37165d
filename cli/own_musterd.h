#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "controller/common/ready_file.h"

namespace cli {

/// The start of a person's own musterd.
struct Start {
  std::filesystem::path data_folder;
  std::vector<std::string> flags = {};  // of musterd, besides those that muster up gives it
  bool may_use_service = true;          // a unit of systemd --user, where that can run one
  bool in_slurm = false;                // the command is for a Slurm job, see SlurmController
};

/// The command that runs musterd. Throws a Failure if there is no musterd, or if a flag is none for `muster up`.
std::vector<std::string> command_of(const Start& start);

struct Started {
  common::ReadyFile ready;
  bool was_there = false;  // nothing was started
  std::string no_service;  // why systemd --user does not run it; empty: it does, or was not asked
};

/// Starts musterd on the data folder, and waits until it is ready. A unit of systemd --user runs it, else it runs
/// detached from terminal and login: a session of its own, no standard input, a log of bounded size in the data folder.
/// Its ports are of its own choice (`--listen auto`). Two calls at once start one musterd.
/// Throws a Failure with musterd's own words if it does not start. A musterd on another host is never started a second
/// time, see [Note: the evidence that a musterd runs].
Started start_musterd(const Start& start);

/// Ends the musterd in order, and returns when it has ended. Jobs that run go on. Throws a Failure if it does not end.
void stop_musterd(const common::Running& running);

/// who_runs(), after a musterd that starts or ends has done so. Throws a Failure if that takes too long.
common::Running settled(const std::filesystem::path& data_folder);

/// musterd's words in the log since it had `from` bytes: the line that says why it ended, else the last lines.
std::string words_since(const std::filesystem::path& log, std::uintmax_t from);
/// 0: there is no log.
std::uintmax_t size_of_log(const std::filesystem::path& data_folder);
/// The log of a musterd that start_musterd() has started.
std::filesystem::path log_of(const std::filesystem::path& data_folder);

}  // namespace cli
