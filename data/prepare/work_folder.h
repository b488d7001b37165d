#pragma once

#include <filesystem>
#include <string>

#include "base/fd.h"

namespace data::prepare {

/// The folder that a command fills. While it is unfinished it holds `.work/options.json`, what the command was asked
/// for, and `.work/lock`, which its process holds. Then data.json has the options, and `.work` is gone.
class WorkFolder {
 public:
  /// Makes the folder, or takes up one that a command with the same options has begun or finished. `options`: a JSON
  /// object. Throws std::runtime_error naming folder, finding and remedy: a folder of other options (named with both
  /// values), or of other files. Throws std::system_error when the disk refuses, and for a folder that another process
  /// fills now.
  WorkFolder(std::filesystem::path folder, const std::string& options);

  /// Whether data.json is there: nothing is left to do.
  bool is_finished() const { return is_finished_; }
  /// Whether an earlier command has begun the folder.
  bool is_begun() const { return is_begun_; }

  /// Removes `.work`, if it can, after data.json is written.
  void finish();

 private:
  void lock();
  void check_options(const std::string& found, const std::string& wanted) const;

  const std::filesystem::path folder_;
  base::Fd lock_;
  bool is_finished_ = false, is_begun_ = false;
};

}  // namespace data::prepare
