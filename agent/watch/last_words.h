#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "agent/watch/agent_files.h"
#include "spec/exit_codes.h"

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

/// True if what the program wrote last may tell why it ended so. Not where it was done or left as asked, nor where it
/// was killed from outside: then its last error line is about something else.
bool may_have_words(const spec::ExitStatus& end);

/// The message of torchelastic's error file; empty: the text is no such file's.
std::string words_of_error_file(std::string_view text);
/// One line of valid UTF-8 without control characters, at most kMostWords bytes; a longer one ends with "...".
std::string fit_for_a_sentence(std::string_view text);

/// The program's own words: of its error file, else of the last kMostRead bytes of its log. Where those tell only that
/// somebody else has gone, the error files of a launcher's workers are read (words_of_workers). Reads regular files
/// alone, and waits as long as their file system does.
std::string read_last_words(const RankFiles& files);

/// True if a rank that muster has asked to leave may have failed by itself before.
bool may_have_failed(const spec::ExitStatus& end);
/// The error that a rank closes with which muster has asked to leave because another rank failed: its own failure may
/// have come first. Only a sure error that nothing follows, and none that says that another rank has gone; else empty.
std::string read_own_failure(const RankFiles& files);

inline constexpr std::size_t kMostWords = 300;
inline constexpr std::size_t kMostRead = 64 << 10;

}  // namespace agent::watch
