#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "controller/core/event.h"

namespace jobs {

/// The contents of a program's checkpoint folder, for muster to see whether an attempt brought anything new. Clocks of
/// other nodes play no part: names, sizes and times of files are compared with what they were, never with a time.
///
/// Left out is what is no checkpoint: muster's own FENCE and FENCE.lock, logs and curves (*.log, *.out, *.err,
/// events.out.tfevents*), locks and drafts (*.lock, *.pid, *.tmp), names that begin with a dot, and whole folders of
/// experiment trackers (wandb, mlruns, __pycache__). A program that rewrites one of those at each start would else be
/// started for ever.
struct FolderContents {
  struct Entry {
    std::uint64_t digest = 0;    // of names, sizes and times of all files below
    std::int64_t newest_ns = 0;  // the latest of these times
    bool operator==(const Entry&) const = default;
  };
  std::map<std::string, Entry> entries;  // files and folders at the top that hold a file, by names in UTF-8
  /// The saves, by the names of agent::watch::saves_of() in UTF-8; nullopt: an earlier musterd has not noted them.
  std::optional<std::map<std::string, Entry>> saves;
  std::string trouble;  // not empty: why it is not known what is there
  bool operator==(const FolderContents&) const = default;
};

/// A folder that is not there is empty. Takes as long as its file system does.
FolderContents look_into(const std::filesystem::path& folder);
/// Returns the contents that look_into() returns, but gives up after kFolderPatience.
FolderContents look_into_soon(const std::filesystem::path& folder);

/// Returns the contents that look_into() returns, without the changes since `before` that only cut off saves made.
///
/// Judged is each save that is new or has changed. An entry is left out where none of its saves that tell a step is
/// whole. Of an entry without such a save, all others must be whole. So an older complete checkpoint counts beside a
/// newer one that was cut off, and a damaged file beside them hides nothing.
FolderContents look_for_whole_saves(const std::filesystem::path& folder, const FolderContents& before);

std::string to_text(const FolderContents& contents);
/// Reads the text that to_text() wrote; nothing for any other text.
std::optional<FolderContents> contents_from_text(const std::string& text);

/// The event for the history at the end of an attempt; nothing where nothing is new.
std::optional<core::CheckpointFolderSeen> compare(core::AttemptNumber attempt, const FolderContents& before,
                                                  const FolderContents& after);

inline constexpr std::size_t kMostFiles = 20'000;
inline constexpr int kDeepest = 6;
inline constexpr core::Millis kFolderPatience{2'000};

}  // namespace jobs
