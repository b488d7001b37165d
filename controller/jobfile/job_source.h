#pragma once

#include <toml++/toml.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "launch/environment.h"

namespace jobfile {

inline constexpr std::size_t kMostJobFileBytes = 1 << 20;
inline constexpr std::size_t kDeepestExtends = 8;

/// A job file and those it extends, read once.
class JobSource {
 public:
  /// `name` stands for the file in problems; relative paths count from `folder`, which is absolute.
  static JobSource of_text(std::string_view text, const std::string& name, const std::filesystem::path& folder);
  /// A file that is missing, unreadable, a folder or too large is a problem.
  static JobSource of_file(const std::filesystem::path& file);

  /// Lines for people, each with its place; without any, merged() may be used.
  const std::vector<std::string>& problems() const { return problems_; }
  /// All of it as one table: what a file says replaces what the file it extends says; tables are merged. Each value
  /// knows the name of its file and its place there.
  toml::table merged() const;

  /// The submitter's environment, of which a job may take a part. Empty before set_submitter().
  const launch::Environment& submitter() const { return submitter_; }
  void set_submitter(launch::Environment environment) { submitter_ = std::move(environment); }

  const std::string& name() const { return name_; }
  const std::filesystem::path& folder() const { return folder_; }
  /// Of the file a value came from.
  const std::filesystem::path& folder_of(const toml::source_region& source) const;
  /// What stands there, of one line; empty where that can't be told.
  std::string text_of(const toml::source_region& source) const;
  /// 0: the job file; 1: what it extends; ...
  std::size_t depth_of(const toml::source_region& source) const;

 private:
  struct File {
    std::string text, name;
    std::filesystem::path folder, identity;
  };
  /// "extends" of the newest file, if it has one, as the next file.
  bool add_base();
  void read(const std::filesystem::path& file, const std::string& refused_at);
  void refuse(const toml::source_region& place, const std::string& problem);
  const File* file_of(const toml::source_region& source) const;

  std::string name_;
  std::filesystem::path folder_;
  launch::Environment submitter_;
  std::vector<File> files_;  // each extends the next
  std::vector<std::string> problems_;
};

/// "job.toml:3:7: "
std::string text_of_place(const std::string& name, const toml::source_position& at);

}  // namespace jobfile
