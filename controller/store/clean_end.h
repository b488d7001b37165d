#pragma once

#include <filesystem>

namespace store {

/// Whether a database was closed in order, so that opening it again need not read all of it. A file beside the database
/// says so: it holds the size, the number (inode) and the time of change that the database had at its end. Whatever
/// changes the database afterwards makes it untrue.
class CleanEnd {
 public:
  explicit CleanEnd(std::filesystem::path database);
  /// Says so, if begin() was called and doubt() was not, and no log file of the database is left. Call it, by
  /// destroying this, when the database is closed.
  ~CleanEnd();
  CleanEnd(const CleanEnd&) = delete;
  CleanEnd& operator=(const CleanEnd&) = delete;

  /// Whether the database is as its last orderly end left it.
  bool is_known() const;
  /// The database is in use from now on: it is unknown until the next orderly end.
  void begin();
  /// Something in the database was found damaged.
  void doubt() { doubted_ = true; }

 private:
  std::filesystem::path database_, mark_;
  bool begun_ = false, doubted_ = false;
};

}  // namespace store
