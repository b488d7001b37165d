#pragma once

#include <filesystem>

namespace store {

/// Remembers that a database was closed cleanly, so that the next start need not check the whole file.
///
/// The mark is the file `<database>.clean`. It holds the size, inode and modification time of the closed database. Any
/// later change of the database makes the mark invalid.
class CleanEnd {
 public:
  explicit CleanEnd(std::filesystem::path database);
  /// Writes the mark if begin() was called, doubt() was not, and the database has no log file left. Destroy this object
  /// after the database is closed.
  ~CleanEnd();
  CleanEnd(const CleanEnd&) = delete;
  CleanEnd& operator=(const CleanEnd&) = delete;

  /// True if the mark is valid: nothing has changed the database since it was closed cleanly.
  bool is_known() const;
  /// Deletes the mark. Call it before the first write.
  void begin();
  /// Call it when the database was found damaged. No mark is written then.
  void doubt() { doubted_ = true; }

 private:
  std::filesystem::path database_, mark_;
  bool begun_ = false, doubted_ = false;
};

}  // namespace store
