#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cli {

/// What the command line gave; stronger than everything else.
struct Flags {
  std::optional<std::string> address;
  std::optional<std::string> token_file;
};

/// Where configuration may be, the strongest file first.
struct ConfigPlaces {
  std::vector<std::filesystem::path> files;
  /// A variable of the environment; empty ones count as absent.
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
  std::optional<std::string> token;          // from MUSTER_TOKEN: stronger than any file but --token-file
  std::vector<std::filesystem::path> files;  // those that were there
  /// What may be wrong with `address`, for the message that nobody answers there. May be empty.
  std::string doubt;
  /// The data folder on this machine that MUSTER_DATA_FOLDER names, else the one that musterd takes by default.
  std::filesystem::path data_folder;
};

/// flag > MUSTER_ADDRESS, MUSTER_TOKEN_FILE, MUSTER_TOKEN > MUSTER_DATA_FOLDER: its musterd.json and its token > the
/// first file that has the key > the default data folder's musterd.json and token > 127.0.0.1:7600. A file with an
/// unknown key, a wrong type or no TOML is a Failure with kUsage that names line and column, whether or not a stronger
/// setting hides it.
Config load_config(const Flags& flags, const ConfigPlaces& places);

/// The token to show; a Failure with kUnreachable if there is none to be read.
std::string read_token(const Config& config);

/// True if the address is this machine's own, so that paths mean the same on both sides.
bool is_loopback(const std::string& address);

}  // namespace cli
