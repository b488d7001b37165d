#include "cli/cli_config.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include "base/host_name.h"
#include "base/numbers.h"
#include "base/words.h"
#include "cli/client.h"
#include "spec/jobfile/toml_value.h"
#include "spec/variables.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostReadyBytes = 4096;
// The Python client alone reads http_address.
const std::vector<std::string> kKeys{"address", "http_address", "token_file"};
constexpr std::uintmax_t kMostFileBytes = 64 * 1024;
constexpr std::size_t kMostTokenBytes = 4096;

/// A client on the same machine reaches a daemon that listens on all addresses by the loopback address.
std::string reached_at(const std::string& address) {
  for (const auto& [everywhere, own] : {std::pair{"0.0.0.0:", "127.0.0.1:"}, std::pair{"[::]:", "[::1]:"}}) {
    if (address.starts_with(everywhere)) return own + address.substr(std::string_view(everywhere).size());
  }
  return address;
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Why the file's addresses will not answer: "…/musterd.json was left by process 12, which has ended". Empty: its
/// musterd runs.
std::string stale_text(const ReadyFile& ready) {
  if (!ready.host.empty() && ready.host != base::host_name()) {
    return ready.file.native() + " belongs to a musterd on host " + ready.host + ", and this is " + base::host_name();
  }
  if (ready.pid > 0 && kill(static_cast<pid_t>(ready.pid), 0) != 0 && errno == ESRCH) {
    return ready.file.native() + " was left by process " + std::to_string(ready.pid) + ", which has ended";
  }
  return {};
}

std::string place(const fs::path& file, const toml::source_region& source) {
  return file.native() + ":" + std::to_string(source.begin.line) + ":" + std::to_string(source.begin.column) + ": ";
}

std::map<std::string, std::string> read_keys(const fs::path& file) {
  toml::table table;
  try {
    table = toml::parse_file(file.native());
  } catch (const toml::parse_error& error) {
    throw Failure(kUsage, place(file, error.source()) + jobfile::syntax_problem(error.description()));
  }
  std::map<std::string, std::string> found;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (std::find(kKeys.begin(), kKeys.end(), name) == kKeys.end()) {
      const auto near = base::nearest(name, kKeys);
      throw Failure(kUsage, place(file, key.source()) + jobfile::shown(name) + ": unknown key, " +
                                (near.empty() ? "want address or token_file (a job file is given to muster submit)"
                                              : "did you mean " + near));
    }
    const auto* text = node.as_string();
    if (text == nullptr || text->get().empty()) {
      throw Failure(kUsage,
                    place(file, node.source()) + name + " \"" + jobfile::shown(node) + "\": want a text in quotes");
    }
    found[name] = text->get();
  }
  return found;
}

/// Makes the path absolute. "~/x" is below HOME; other relative paths start at `folder`.
std::string absolute(const std::string& path, const fs::path& folder, const ConfigPlaces& places) {
  const auto home = places.variable("HOME");
  if (path.starts_with("~/") && home) return (fs::path(*home) / path.substr(2)).native();
  return (folder / path).lexically_normal().native();
}

/// musterd's default data folder; empty: HOME is not set.
Setting default_data_folder(const ConfigPlaces& places) {
  if (const auto folder = places.variable("XDG_DATA_HOME")) {
    return {(fs::path(*folder) / "muster").native(), "XDG_DATA_HOME"};
  }
  return {absolute("~/.local/share/muster", "/", places), "default"};
}

/// The data folder of the musterd that runs this process as a rank: three folders above that of its attempt
/// (common::DataFolder). nullopt: this is no rank, or no musterd has started it.
std::optional<fs::path> data_folder_of_own_job(const ConfigPlaces& places) {
  const auto attempt = places.variable(spec::variable::kAttemptFolder);
  if (!attempt) return std::nullopt;
  const auto jobs = fs::path(*attempt).parent_path().parent_path();
  std::error_code error;
  if (jobs.filename() != "jobs" || !fs::exists(jobs.parent_path() / "token", error)) return std::nullopt;
  return jobs.parent_path();
}

/// Refuses a malformed address here. Later it would only be "unreachable".
void check_address(const Setting& address) {
  const auto& text = address.value;
  if (text.starts_with("unix:")) return;
  const auto colon = text.rfind(':');
  const auto port = colon == std::string::npos ? std::string() : text.substr(colon + 1);
  if (colon == 0 || base::whole_number<std::uint16_t>(port).value_or(0) == 0) {
    throw Failure(kUsage, address.source + " \"" + jobfile::shown(text) + "\": want host:port such as 127.0.0.1:7600");
  }
}

/// Why the token file could not be read.
std::string token_problem(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return "it is a folder";
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::strerror(errno);
  close(descriptor);
  return "its first line is empty or too long";
}

}  // namespace

std::optional<ReadyFile> read_ready_file(const std::filesystem::path& data_folder) {
  ReadyFile ready;
  ready.file = data_folder / "musterd.json";
  std::ifstream in(ready.file);
  std::string text(kMostReadyBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  ready.grpc = reached_at(text_of(object, "grpc"));
  ready.http = reached_at(text_of(object, "http"));
  ready.host = text_of(object, "host");
  if (const auto pid = object.find("pid"); pid != object.end() && pid->is_number_integer()) ready.pid = *pid;
  if (ready.grpc.empty()) return std::nullopt;
  return ready;
}

ConfigPlaces usual_places() {
  ConfigPlaces places;
  places.variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
  places.files.emplace_back("muster.toml");
  if (const auto home = places.variable("HOME")) places.files.push_back(fs::path(*home) / ".config/muster/config.toml");
  places.files.emplace_back("/etc/muster/config.toml");
  return places;
}

Config load_config(const Flags& flags, const ConfigPlaces& places) {
  Config config{{}, {}, places.variable("MUSTER_TOKEN"), {}, {}, {}};
  const auto take = [](Setting& setting, std::string value, const std::string& source) {
    if (setting.source.empty()) setting = {std::move(value), source};
  };
  // Takes the token of a data folder and, if there is a musterd.json, the address.
  const auto take_folder = [&](const std::string& folder, const std::string& source, bool named) {
    config.data_folder = folder;
    if (config.address.source.empty()) {
      if (const auto ready = read_ready_file(folder)) {
        take(config.address, ready->grpc, ready->file.native());
        config.doubt = stale_text(*ready);
      } else if (named) {
        config.doubt = "there is no " + folder + "/musterd.json, so no musterd runs on that folder (" + source + ")";
      }
    }
    take(config.token_file, (fs::path(folder) / "token").native(), source);
  };
  const auto here = fs::current_path();
  if (flags.address) take(config.address, *flags.address, "--address");
  if (flags.token_file) {
    take(config.token_file, absolute(*flags.token_file, here, places), "--token-file");
    config.token.reset();
  }
  if (const auto value = places.variable("MUSTER_ADDRESS")) take(config.address, *value, "MUSTER_ADDRESS");
  if (const auto value = places.variable("MUSTER_TOKEN_FILE")) {
    take(config.token_file, absolute(*value, here, places), "MUSTER_TOKEN_FILE");
  }
  const auto named_folder = places.variable("MUSTER_DATA_FOLDER");
  if (named_folder) take_folder(absolute(*named_folder, here, places), "MUSTER_DATA_FOLDER", true);
  const auto job = named_folder ? std::nullopt : data_folder_of_own_job(places);
  if (job) {
    // The addresses in musterd.json are those on musterd's own machine.
    const auto ready = read_ready_file(*job);
    const bool is_here = ready && (ready->host.empty() || ready->host == base::host_name());
    const auto told = places.variable(spec::variable::kController);
    if (told && !is_here) take(config.address, *told, spec::variable::kController);
    take_folder(job->native(), spec::variable::kAttemptFolder, true);
  }
  for (const auto& file : places.files) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) continue;
    if (fs::file_size(file, error) > kMostFileBytes) {
      throw Failure(kUsage, file.native() + ": larger than 64 KiB; this is not a configuration of muster");
    }
    config.files.push_back(file);
    for (const auto& [key, value] : read_keys(file)) {
      if (key == "address") take(config.address, value, file.native());
      if (key == "token_file") {
        take(config.token_file, absolute(value, fs::absolute(file).parent_path(), places), file.native());
      }
    }
  }
  if (!named_folder && !job) {
    const auto folder = default_data_folder(places);
    take_folder(folder.value, folder.source, false);
  }
  take(config.address, "127.0.0.1:7600", "default");
  check_address(config.address);
  return config;
}

std::string read_token(const Config& config) {
  if (config.token) return *config.token;
  const auto& [path, source] = config.token_file;
  std::ifstream in(path);
  std::string token;
  if (!in || !std::getline(in, token) || token.empty() || token.size() > kMostTokenBytes) {
    throw Failure(kUnreachable, "cannot read the token from " + path + " (" + source + "): " + token_problem(path) +
                                    "; musterd writes it at its first start; name its file with --token-file, or put "
                                    "the token into MUSTER_TOKEN");
  }
  while (!token.empty() && (token.back() == '\r' || token.back() == ' ')) token.pop_back();
  return token;
}

bool is_loopback(const std::string& address) {
  const auto host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host.starts_with("127.") || host == "[::1]" || address.starts_with("unix:");
}

}  // namespace cli
