#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "controller/common/ready_file.h"

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
  /// True if nobody named an address, and no musterd of the data folder runs here. Then nobody is asked: another user's
  /// program may have the usual port by now, or the port of a musterd that was killed, and would get the token.
  bool is_absent = false;
  /// The data folder on this machine: MUSTER_DATA_FOLDER, else that of the own job, else musterd's default.
  std::filesystem::path data_folder;
};

/// Combines the sources. The first of these that has a setting wins:
///   1. the flags
///   2. MUSTER_ADDRESS, MUSTER_TOKEN_FILE, MUSTER_TOKEN
///   3. MUSTER_DATA_FOLDER: the address in its musterd.json, and its token
///   4. in a rank: the controller of its job, by MUSTER_ATTEMPT_FOLDER; on another machine the address that this
///      controller advertises, else MUSTER_CONTROLLER
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

/// The address by which this machine reaches a port of the musterd that wrote the file: one that listens on all
/// addresses is reached by the loopback address here, and elsewhere by the host that it advertises, else by its host's
/// name.
std::string reached_at(const std::string& address, const common::ReadyFile& ready);

/// The configuration of a client of this very musterd.
Config config_of(const common::ReadyFile& ready);

/// musterd's usual data folder; empty: HOME is not set.
Setting usual_data_folder(const ConfigPlaces& places);

}  // namespace cli
