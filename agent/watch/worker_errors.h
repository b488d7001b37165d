#pragma once

#include <string>
#include <string_view>

namespace agent::watch {

/// The earliest error that a worker of a launcher wrote into its error file, and that no other worker's end explains:
/// the message, fit for a sentence. Empty: there is none.
///
/// `log` is the end of the launcher's log. torchelastic's last block there names the error files of the workers that it
/// saw fail. Those of the others lie beside them (`attempt_0/<local rank>/error.json`): a worker may have written its
/// error and still have been alive when a survivor of it failed. Where the block says that SIGKILL was first, nothing
/// is looked for. Reads regular files alone, kMostWorkers of them at most.
std::string words_of_workers(std::string_view log);

inline constexpr int kMostWorkers = 256;

}  // namespace agent::watch
