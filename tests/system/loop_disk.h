#pragma once

#include <filesystem>
#include <string>

namespace test {

/// A file system of the test's own (ext4 on a loop device) that can be made to stand still: until it is thawed, whoever
/// writes there waits in the kernel, where not even SIGKILL reaches.
///
/// So the test itself must not write there meanwhile, nothing else may use it, and it must be thawed before anybody
/// waits for processes that do: Thawed. tests/guard.py thaws what a killed test leaves.
class LoopDisk {
 public:
  /// Mounts it at `where`, a folder that is made. Its image lies beside.
  explicit LoopDisk(const std::filesystem::path& where);
  /// Thaws and unmounts.
  ~LoopDisk();
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;

  const std::filesystem::path& where() const { return where_; }
  /// Why there is none: this machine mounts nothing for this user, say. Empty: it is there.
  const std::string& why_not() const { return why_not_; }
  /// Returns when all that was written is on disk. Throws std::runtime_error if it can't be.
  void freeze();
  /// Thaws the disk. Does nothing if the disk is not frozen.
  void thaw();

 private:
  std::filesystem::path where_;
  std::string why_not_;
  int folder_ = -1;  // opened while it was not frozen
};

/// Thaws a disk when it goes: declared after all that waits for processes.
class Thawed {
 public:
  explicit Thawed(LoopDisk& disk) : disk_(disk) {}
  ~Thawed() { disk_.thaw(); }
  Thawed(const Thawed&) = delete;
  Thawed& operator=(const Thawed&) = delete;

 private:
  LoopDisk& disk_;
};

}  // namespace test
