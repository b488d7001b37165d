#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace cli {

/// The contents of <data>/musterd.json, which a running musterd writes. A musterd that was killed leaves the file
/// behind.
struct ReadyFile {
  std::filesystem::path file;
  std::string grpc, http;  // HOST:PORT for clients on this machine
  std::int64_t pid = 0;
  std::string host;  // empty: an older musterd wrote the file
};

/// nullopt: the file is missing, unreadable or malformed.
std::optional<ReadyFile> read_ready_file(const std::filesystem::path& data_folder);

/// Why the file's addresses will not answer: "…/musterd.json was left by process 12, which has ended". Empty: its
/// musterd runs.
std::string stale_text(const ReadyFile& ready);

}  // namespace cli
