#include "data/prepare/work_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/durable_file.h"
#include "data/format/description.h"
#include "data/format/format.h"

namespace data::prepare {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kWork = ".work";
constexpr std::size_t kMostOptionsBytes = 64 << 20;  // 65,536 labels of 1 KiB
constexpr std::size_t kMostShown = 100;              // bytes of a value in a message

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string shown(const Json& object, const std::string& key) {
  if (!object.contains(key)) return "not there";
  auto text = object.at(key).dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown - 3) + "...";
  return text;
}

/// "size was 256 and is 128", for each key that differs.
std::string differences(const Json& found, const Json& wanted) {
  Json keys = found;
  keys.update(wanted);
  std::string out;
  for (const auto& [key, value] : keys.items()) {
    if (found.contains(key) && wanted.contains(key) && found.at(key) == wanted.at(key)) continue;
    out += (out.empty() ? "" : "; ") + key + " was " + shown(found, key) + " and is " + shown(wanted, key);
  }
  return out;
}

/// Whether a part is whole.
bool has_parts(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == format::kFileEnding) return true;
  return false;
}

}  // namespace

WorkFolder::WorkFolder(fs::path folder, const std::string& options) : folder_(std::move(folder)) {
  const auto work = folder_ / kWork;
  // A finished folder may be read-only.
  if (is_there(folder_ / format::kDescriptionName) && !is_there(work)) {
    check_options(format::read_description(folder_).options, options);
    is_finished_ = true;
    return;
  }
  std::error_code ignored;
  if (is_there(folder_) && !is_there(work) && !fs::is_empty(folder_, ignored)) {
    throw std::runtime_error("--to " + folder_.native() +
                             ": is not empty, and no muster data prepare has begun it; name a new folder");
  }
  base::make_folders(work);
  lock();
  if (is_there(folder_ / format::kDescriptionName)) {
    // Killed between data.json and the end, or finished by the process that held the lock.
    check_options(format::read_description(folder_).options, options);
    finish();
    is_finished_ = true;
    return;
  }
  const auto path = work / "options.json";
  // Options without a part are those of a command that its source has stopped, and bind nothing.
  is_begun_ = is_there(path) && has_parts(folder_);
  if (is_begun_) {
    check_options(base::read_small_file(path, kMostOptionsBytes), options);
  } else {
    base::write_file_durably(path, options, 0644);
  }
}

void WorkFolder::lock() {
  const auto path = folder_ / kWork / "lock";
  lock_ = base::Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_) throw std::system_error(errno, std::generic_category(), "cannot open " + path.native());
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno == EWOULDBLOCK) {
    throw std::system_error(EBUSY, std::generic_category(),
                            "--to " + folder_.native() +
                                ": another muster data prepare fills this folder now; wait for it, or name another "
                                "folder");
  }
  // A file system without locks: format::Writer keeps two processes from mixing one file.
}

void WorkFolder::check_options(const std::string& found, const std::string& wanted) const {
  const auto before = Json::parse(found, nullptr, /*allow_exceptions=*/false);
  if (!before.is_object()) {
    throw std::runtime_error((folder_ / kWork / "options.json").native() +
                             ": is no JSON object; remove the folder and start again");
  }
  const auto differing = differences(before, Json::parse(wanted));
  if (differing.empty()) return;
  throw std::runtime_error("--to " + folder_.native() + ": was made with other options or from another source: " +
                           differing + "; repeat that command, name another folder, or remove this one");
}

void WorkFolder::finish() {
  lock_.reset();  // NFS keeps a file that is open, and with it the folder
  std::error_code ignored;
  fs::remove_all(folder_ / kWork, ignored);  // data.json alone says that the data are there
}

}  // namespace data::prepare
