#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace common {

/// A running musterd's word about itself, <data>/musterd.json. It is removed when musterd ends in order; a musterd that
/// was killed leaves it behind.
struct ReadyFile {
  std::filesystem::path file;
  std::int64_t pid = 0;
  std::uint64_t start_time = 0;  // of the process, in clock ticks since boot; 0: an older musterd wrote the file
  std::string boot;              // base::boot_id()
  std::string host;              // empty: an older musterd wrote the file
  std::string grpc, http;        // HOST:PORT as musterd listens there
  std::string advertised;  // HOST:PORT by which other machines reach `grpc`; empty: an older musterd wrote the file
  std::string slurm_job;   // in which musterd runs, see [Note: musterd inside Slurm jobs]; empty: none

  bool is_of_this_host() const;
  bool is_of_this_process() const;
  /// True if the process that wrote the file is alive on this machine.
  bool is_alive() const;
};

/// nullopt: the file is missing, unreadable or malformed.
std::optional<ReadyFile> read_ready_file(const std::filesystem::path& data_folder);

/// The words of this process about itself, as ReadyFile has them.
struct OwnPlace {
  std::string grpc, http, advertised, version, slurm_job = {};
};

/// Writes the file of this process. Removes it at the end, unless another musterd has written its own meanwhile.
class OwnReadyFile {
 public:
  /// Throws std::system_error that names the file.
  OwnReadyFile(const std::filesystem::path& data_folder, const OwnPlace& place);
  ~OwnReadyFile();
  OwnReadyFile(const OwnReadyFile&) = delete;
  OwnReadyFile& operator=(const OwnReadyFile&) = delete;

 private:
  std::filesystem::path data_folder_;
};

/// The answer to "does a musterd run on this data folder?".
///
/// [Note: the evidence that a musterd runs]
/// A running musterd holds `DataFolder::lock()`, from before it is ready until its end, however it ends. So a lock that
/// is free means that none runs, and a process id that another program has got since proves nothing. Where machines
/// share the folder, the lock counts if its file system passes locks on to the other machines: a local disk, which no
/// other machine has, and NFS without `nolock` and `local_lock`. On any other shared file system a musterd.json of
/// another host is believed.
struct Running {
  enum class Kind {
    kNone,
    kHere,       // and it is ready
    kBusy,       // on this machine or another one, before it is ready or after it began to end
    kElsewhere,  // on another host, or nobody here can tell that it has ended: another user's folder
  };
  Kind kind = Kind::kNone;
  std::optional<ReadyFile> ready;  // what musterd.json says; of kNone it was left behind
  /// The evidence in words: "/data/musterd.json was left by process 12, which has ended". Empty for kNone without a
  /// musterd.json.
  std::string why;
};

/// Takes the lock for a moment at most, for which a musterd that starts waits.
Running who_runs(const std::filesystem::path& data_folder);
/// True if a lock on a file of this folder is seen by every machine that has the folder. `mountinfo`: the text of
/// /proc/self/mountinfo. Pure.
bool is_lock_seen_everywhere(const std::filesystem::path& folder, const std::string& mountinfo);

}  // namespace common
