#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace agent::watch {

/// StopNotice::why where another rank of the attempt has failed.
inline constexpr std::string_view kPeerFailed = "peer_failed";

/// Why a rank is asked to leave, for its program to read: the file that MUSTER_STOP names, written before the signal.
/// A program that is asked to leave and finds no such file was asked by somebody else, Slurm for one, and should save.
struct StopNotice {
  /// "preempted", "time_limit", "requeued", "cancelled", "peer_failed", "superseded"
  std::string why;
  bool save = false;                         // false: nobody waits for a save, and one of this rank alone would be torn
  std::int64_t deadline_ms = 0;              // when SIGKILL follows, by this machine's clock: since 1970
  std::optional<std::int64_t> at_step = {};  // all ranks leave after this step; nullopt: each at once
};

/// {"why":"preempted","save":true,"at_step":1240,"deadline":1795474243.500}, the deadline in seconds.
std::string to_text(const StopNotice& notice);

/// Whole or not at all, for whoever reads it meanwhile. False: the file system refuses it.
bool write_stop_file(const std::filesystem::path& file, const StopNotice& notice);

/// Whether the rank's program looks for the stop file by itself: then it has made a file of that name with kAsked
/// behind it. Such a program needs no signal. One would reach its data loaders too, and end them before it has saved.
bool looks_for(const std::filesystem::path& stop_file);
inline constexpr const char* kAsked = ".asked";

}  // namespace agent::watch
