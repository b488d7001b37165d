#include "data/prepare/prepare_job.h"

#include <fcntl.h>
#include <sys/file.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/durable_file.h"
#include "base/fd.h"
#include "base/words.h"
#include "data/format/dataset.h"
#include "data/format/format.h"
#include "data/format/writer.h"
#include "data/order/random.h"
#include "data/prepare/tokenizer_copy.h"

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

/// True if a part in the folder is whole.
bool has_parts(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == format::kFileEnding) return true;
  return false;
}

/// The folder that a command fills. While it is unfinished it holds `.work/options.json`, what the command was asked
/// for, and `.work/lock`, which its process holds. Then data.json has the options, and `.work` is gone.
class WorkFolder {
 public:
  /// Makes the folder, or takes up one that a command with the same options has begun or finished. `options`: a JSON
  /// object. Throws as prepare() does.
  WorkFolder(fs::path folder, const std::string& options) : folder_(std::move(folder)) {
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

  /// True if data.json is there: nothing is left to do.
  bool is_finished() const { return is_finished_; }
  /// True if an earlier command has begun the folder.
  bool is_begun() const { return is_begun_; }
  /// Removes `.work`, if it can, after data.json is written.
  void finish() {
    lock_.reset();  // NFS keeps a file that is open, and with it the folder
    std::error_code ignored;
    fs::remove_all(folder_ / kWork, ignored);  // data.json alone says that the data are there
  }

 private:
  void lock() {
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

  void check_options(const std::string& found, const std::string& wanted) const {
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

  const fs::path folder_;
  base::Fd lock_;
  bool is_finished_ = false, is_begun_ = false;
};

/// Changes when the same options give other bytes than before.
constexpr int kContract = 2;
/// Files of a split. A rank maps all of them, and a process has 65,530 maps.
constexpr std::int64_t kMostParts = 30'000;

/// Thrown out of a source's read to end it.
struct Stopped {};

constexpr const char* kTrain = "train";
constexpr const char* kValidation = "validation";
constexpr std::uint64_t kShares = 1'000'000;

/// The facts about the files of one part. `validation`: nullopt if there is no such split.
struct PartInfo {
  format::FileInfo train;
  std::optional<format::FileInfo> validation = std::nullopt;
};

fs::path path_of(const Job& job, const char* split, std::int64_t part) {
  return job.folder / format::file_name(split, static_cast<std::uint64_t>(part));
}

/// Images have no tokenizer.
std::unique_ptr<format::Writer> open_writer(const Job& job, const char* split, std::int64_t part) {
  const auto* const tokenizer = job.tokenizer.get();
  return std::make_unique<format::Writer>(
      path_of(job, split, part), job.records.kind,
      tokenizer == nullptr ? 0 : static_cast<std::uint64_t>(tokenizer->vocabulary()),
      tokenizer == nullptr ? base::Sha256::Digest{} : tokenizer->sha256());
}

/// Writes the files of one part: train-NNNNN.mdat and validation-NNNNN.mdat. Without finish() neither is there.
///
/// A part whose source has no record gets files of 0 records. The last record of part 0 goes to the split that has none
/// of this part yet, to train first. So a small source has both splits, and a part is still a function of its own
/// records.
class PartWriter {
 public:
  PartWriter(const Job& job, std::int64_t part)
      : options_(job.splits), part_(part), train_(open_writer(job, kTrain, part)) {
    if (options_.validation > 0) validation_ = open_writer(job, kValidation, part);
  }

  /// Throws as format::Writer does.
  void add(Record&& record) {
    write_held(false);
    held_ = std::move(record);
    ++records_;
  }

  PartInfo finish() {
    write_held(true);
    PartInfo info{train_->finish()};
    if (validation_) info.validation = validation_->finish();
    return info;
  }

 private:
  void write_held(bool is_last) {
    if (!held_) return;
    bool validation = validation_ && is_validation(options_, part_, records_ - 1);
    if (is_last && part_ == 0 && validation_) {
      if (in_validation_ == 0) validation = true;
      if (in_train_ == 0) validation = false;
    }
    ++(validation ? in_validation_ : in_train_);
    write(*held_, validation ? *validation_ : *train_);
    held_.reset();
  }

  static void write(const Record& record, format::Writer& to) {
    if (record.fields.empty()) {
      to.add({record.picture.rgb, record.picture.height, record.picture.width}, record.label);
    } else {
      to.add(std::vector<std::span<const std::uint32_t>>(record.fields.begin(), record.fields.end()), record.label);
    }
  }

  const SplitOptions options_;
  const std::int64_t part_;
  std::unique_ptr<format::Writer> train_, validation_;  // null: there is no such split
  std::optional<Record> held_;                          // the newest; whether it is the last is not known yet
  std::int64_t records_ = 0;                            // held one included
  std::int64_t in_train_ = 0, in_validation_ = 0;
};

/// The facts about a part's finished files, after a check of every byte; nullopt if one of the files is not there.
/// Throws std::runtime_error for a damaged file.
std::optional<PartInfo> finished_part(const Job& job, std::int64_t part) {
  const auto train = format::finished_file(path_of(job, kTrain, part));
  if (!train) return std::nullopt;
  PartInfo info{*train};
  if (job.splits.validation <= 0) return info;
  info.validation = format::finished_file(path_of(job, kValidation, part));
  if (!info.validation) return std::nullopt;
  return info;
}

std::int64_t elements_of(const Record& record) {
  auto out = std::ssize(record.picture.rgb);
  for (const auto& field : record.fields) out += std::ssize(field);
  return out;
}

/// Makes parts, by several threads.
class Parts {
 public:
  Parts(const Job& job, Progress& progress, const std::atomic<int>& stop)
      : job_(job), progress_(progress), stop_(stop), infos_(static_cast<std::size_t>(job.records.parts)) {}

  /// Returns false if it was stopped. Throws the error of the first part that has one.
  bool make_all() {
    std::vector<std::thread> threads;
    const auto count = std::min<std::int64_t>(job_.jobs, job_.records.parts);
    for (std::int64_t i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
    for (auto& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
    return stop_ == 0;
  }

  std::vector<std::optional<PartInfo>>& infos() { return infos_; }

 private:
  void work() {
    for (auto part = next_++; part < job_.records.parts && !is_over(); part = next_++) {
      try {
        infos_[static_cast<std::size_t>(part)] = finish_part(part);
      } catch (const Stopped&) {
        return;
      } catch (...) {
        keep_error(part);
        return;
      }
    }
  }

  PartInfo finish_part(std::int64_t part) {
    if (auto kept = kept_part(part)) {
      add(kept->train);
      if (kept->validation) add(*kept->validation);
      progress_.end_part(true, kept->train.records + (kept->validation ? kept->validation->records : 0));
      return *kept;
    }
    PartWriter writer(job_, part);
    std::int64_t records = 0;
    job_.records.make(part, [&](Record&& record) {
      if (is_over()) throw Stopped();
      const auto elements = elements_of(record);
      writer.add(std::move(record));
      progress_.add_records(1, elements);
      ++records;
    });
    if (is_over()) throw Stopped();
    auto made = writer.finish();
    progress_.end_part(false, records);
    return made;
  }

  std::optional<PartInfo> kept_part(std::int64_t part) {
    try {
      return finished_part(job_, part);
    } catch (const std::runtime_error& damage) {
      progress_.say(std::string("made anew: ") + damage.what());
      return std::nullopt;
    }
  }

  void add(const format::FileInfo& info) { progress_.add_records(info.records, info.elements); }

  bool is_over() const { return stop_ != 0 || failed_; }

  void keep_error(std::int64_t part) {
    const std::lock_guard lock(mutex_);
    if (!error_ || part < error_part_) {
      error_ = std::current_exception();
      error_part_ = part;
    }
    failed_ = true;
  }

  const Job& job_;
  Progress& progress_;
  const std::atomic<int>& stop_;
  std::vector<std::optional<PartInfo>> infos_;  // by part; each is written by one thread
  std::atomic<std::int64_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
  std::int64_t error_part_ = 0;
};

format::Description description_of(const Job& job, std::vector<std::optional<PartInfo>>& infos) {
  format::Description out;
  out.kind = job.records.kind;
  out.source = base::valid_utf8(job.records.name);
  out.made_by = job.made_by;
  out.labels = job.records.labels;
  out.fields = job.records.fields;
  out.prefix_text = job.prefix_text;
  out.options = options_of(job);
  if (job.tokenizer) {
    out.tokenizer_kind = job.tokenizer->kind();
    out.tokenizer_sha256 = base::hex(job.tokenizer->sha256());
    out.vocabulary = job.tokenizer->vocabulary();
    out.prefix = job.tokenizer->prefix();
    out.suffix = job.tokenizer->suffix();
    const auto& special = job.tokenizer->special();
    out.pad = special.pad;
    out.bos = special.bos;
    out.eos = special.eos;
    out.mask = special.mask;
  }
  for (const auto& info : infos) {
    out.splits[kTrain].files.push_back(info->train);
    if (info->validation) out.splits[kValidation].files.push_back(*info->validation);
  }
  return out;
}

/// Refuses a split without records.
void check_records(const Job& job, const format::Description& description) {
  std::int64_t all = 0, least = INT64_MAX;
  for (const auto& [name, split] : description.splits) {
    std::int64_t records = 0;
    for (const auto& file : split.files) records += file.records;
    all += records;
    least = std::min(least, records);
  }
  if (least > 0) return;
  if (all == 0) {
    throw std::runtime_error(job.records.name + ": holds no records; name a source that has some, and another --to");
  }
  throw std::runtime_error(job.records.name + ": " + std::to_string(all) + " records are too few for --validation " +
                           Json(job.splits.validation).dump() +
                           ", one split would be empty; name more data, or --validation 0, and another --to");
}

/// Refuses finished data of which files are missing or too short.
void check_files(const fs::path& folder) {
  for (const auto& [name, split] : format::read_description(folder).splits) {
    for (const auto& file : split.files) {
      const auto path = folder / file.name;
      std::error_code error;
      const auto bytes = fs::file_size(path, error);
      if (!error && bytes == file.bytes) continue;
      throw std::runtime_error(
          path.native() + ": " +
          (error ? error.message() : "has " + std::to_string(bytes) + " bytes, not " + std::to_string(file.bytes)) +
          "; remove " + folder.native() + ", and the same command makes it again");
    }
  }
}

/// Refuses what data.json cannot hold, before anything is made.
void check_texts(const Job& job) {
  for (const auto& label : job.records.labels) {
    if (!base::is_utf8(label)) {
      throw std::runtime_error(job.records.name + ": the label " +
                               Json(label).dump(-1, ' ', true, Json::error_handler_t::replace) +
                               " is no UTF-8; rename it");
    }
  }
  if (!base::is_utf8(job.prefix_text)) {
    throw std::runtime_error("--prefix: is no UTF-8; want UTF-8, check this terminal's settings with locale");
  }
}

}  // namespace

bool is_validation(const SplitOptions& options, std::int64_t part, std::int64_t number) {
  const auto limit = static_cast<std::uint64_t>(std::llround(options.validation * static_cast<double>(kShares)));
  const auto place = (static_cast<std::uint64_t>(part) << 32) + static_cast<std::uint64_t>(number);
  return order::splitmix(options.seed + place) % kShares < limit;
}

std::string options_of(const Job& job) {
  Json out = {{"contract", kContract},
              {"source", job.records.description},
              {"kind", format::name_of(job.records.kind)},
              {"labels", job.records.labels},
              {"validation", job.splits.validation},
              {"seed", job.splits.seed}};
  if (job.tokenizer) {
    out["tokenizer"] = fingerprint_of_tokenizer(job.tokenizer_path, *job.tokenizer);
    out["prefix"] = job.prefix_text;
  }
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Ended prepare(const Job& job, Progress& progress, const std::atomic<int>& stop) {
  if (job.records.parts > kMostParts) {
    throw std::runtime_error(job.records.name + ": makes " + std::to_string(job.records.parts) +
                             " files a split, and at most " + std::to_string(kMostParts) +
                             " can be mapped; want a larger --part-size, or less data");
  }
  check_texts(job);
  WorkFolder work(job.folder, options_of(job));
  if (work.is_finished()) {
    check_files(job.folder);
    return Ended::kWasDone;
  }
  if (work.is_begun()) progress.say("goes on with " + job.folder.native() + ", and checks what is there");
  Parts parts(job, progress, stop);
  if (!parts.make_all()) return Ended::kStopped;
  auto description = description_of(job, parts.infos());
  check_records(job, description);
  if (job.tokenizer) copy_tokenizer(job.tokenizer_path, *job.tokenizer, job.folder);
  format::write_description(job.folder, description);
  work.finish();
  return Ended::kDone;
}

}  // namespace data::prepare
