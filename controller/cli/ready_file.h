#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace cli {

/// What a running musterd says of itself in its data folder: <data>/musterd.json. A musterd that was killed leaves it
/// behind.
struct ReadyFile {
  std::filesystem::path file;
  std::string grpc, http;  // HOST:PORT, as this machine reaches them
  std::int64_t pid = 0;
  std::string host;  // empty: written by an older musterd
};

/// nullopt: there is none, it can't be read, or it is no such file.
std::optional<ReadyFile> read_ready_file(const std::filesystem::path& data_folder);

/// Why nobody is to be expected at its addresses: "…/musterd.json was left by process 12, which runs no more". Empty:
/// its musterd runs.
std::string stale_text(const ReadyFile& ready);

}  // namespace cli
