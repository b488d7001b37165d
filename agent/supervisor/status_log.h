#pragma once

#include <string>

#include "base/fd.h"

namespace agent::supervisor {

/// Appends to status.jsonl. One writer, the holder of the folder's lock.
class StatusLog {
 public:
  /// Begins an empty file with room for `ranks` ranks' facts set aside, so that a disk that fills up later does not
  /// lose them. Throws std::system_error.
  StatusLog(int folder, std::size_t ranks);

  /// Adds lines; write() and flush() write them.
  void add(const std::string& line) { lines_ += line; }
  /// Hands every line to the system, which keeps it through the death of this process, though not of the machine.
  /// False: the disk refused (errno says why).
  bool write();
  /// True when every line is on disk; a slow disk makes the call slow. False: the disk refused (errno says why); call
  /// flush() again later.
  bool flush();
  /// Empties the file, as far as the disk allows, when nothing was started after all.
  void erase();

 private:
  base::Fd file_;
  std::string lines_;
  std::size_t written_ = 0;
  bool synced_ = true;
};

}  // namespace agent::supervisor
