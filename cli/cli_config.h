#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cli {

/// Settings from the command line. They override all others.
struct Flags {
  std::optional<std::string> address;
  std::optional<std::string> token_file;
};

/// The sources of the configuration. Earlier files override later ones.
struct ConfigPlaces {
  std::vector<std::filesystem::path> files;
  /// Reads a variable of the environment. An empty variable counts as absent.
  std::function<std::optional<std::string>(const std::string&)> variable;
};
/// ./muster.toml, ~/.config/muster/config.toml, /etc/muster/config.toml and this process's environment.
ConfigPlaces usual_places();

struct Setting {
  std::string value;
  std::string source;  // "--address", "MUSTER_ADDRESS", a file's name, "default"
};

struct Config {
  Setting address;
  Setting token_file;
  std::optional<std::string> token;          // MUSTER_TOKEN; overrides every token file except --token-file
  std::vector<std::filesystem::path> files;  // the configuration files that exist
  /// Why `address` may be wrong, for the message that the controller does not answer; may be empty.
  std::string doubt;
  /// The data folder on this machine: MUSTER_DATA_FOLDER, else that of the own job, else musterd's default.
  std::filesystem::path data_folder;
};

/// Combines the sources. The first of these that has a setting wins:
///   1. the flags
///   2. MUSTER_ADDRESS, MUSTER_TOKEN_FILE, MUSTER_TOKEN
///   3. MUSTER_DATA_FOLDER: the address in its musterd.json, and its token
///   4. in a rank: the controller of its job, by MUSTER_ATTEMPT_FOLDER, and on another machine by MUSTER_CONTROLLER
///   5. the configuration files, in their order
///   6. the default data folder: the address in its musterd.json, and its token
///   7. the address 127.0.0.1:7600
/// Throws a Failure with kUsage, line and column for a file with an unknown key, a wrong type or bad TOML, even if the
/// setting is not used.
Config load_config(const Flags& flags, const ConfigPlaces& places);

/// The token for calls. Throws a Failure with kUnreachable if it cannot be read.
std::string read_token(const Config& config);

/// True for an address of this machine. Paths then mean the same for the controller.
bool is_loopback(const std::string& address);

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

}  // namespace cli
