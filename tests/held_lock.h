#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <filesystem>

#include "base/fd.h"

namespace test {

/// The lock of a data folder, held as a running musterd holds it.
inline base::Fd hold_lock(const std::filesystem::path& data) {
  base::Fd lock(::open((data / "muster.db.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  return lock;
}

}  // namespace test
