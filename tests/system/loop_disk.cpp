#include "tests/system/loop_disk.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "tests/system/process.h"

namespace test {
namespace {

constexpr std::uintmax_t kBytes = 256 << 20;

std::string failure(const Finished& done, const std::string& what) {
  return done.exit == 0 ? std::string() : what + " fails here: " + done.err.substr(0, done.err.find('\n'));
}

}  // namespace

LoopDisk::LoopDisk(const std::filesystem::path& where) : where_(where) {
  std::filesystem::create_directories(where);
  const auto image = where.string() + ".img";
  std::ofstream(image).close();
  std::filesystem::resize_file(image, kBytes);
  if (::getuid() != 0) why_not_ = "mounting a loop device takes root";
  if (why_not_.empty()) why_not_ = failure(run({"/sbin/mkfs.ext4", "-q", "-F", image}, {}, 60s), "mkfs.ext4");
  if (why_not_.empty()) why_not_ = failure(run({"/bin/mount", "-o", "loop", image, where}, {}, 60s), "mount -o loop");
  if (!why_not_.empty()) return;
  folder_ = ::open(where.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  try {
    freeze();
  } catch (const std::runtime_error& error) {
    why_not_ = error.what();
  }
  thaw();
}

LoopDisk::~LoopDisk() {
  if (folder_ < 0) return;
  thaw();
  ::close(folder_);
  if (::umount2(where_.c_str(), 0) != 0) ::umount2(where_.c_str(), MNT_DETACH);
}

void LoopDisk::freeze() {
  if (::ioctl(folder_, FIFREEZE, 0) != 0) {
    throw std::runtime_error("freezing " + where_.string() + " fails here: " + std::strerror(errno));
  }
}

void LoopDisk::thaw() {
  if (folder_ >= 0) ::ioctl(folder_, FITHAW, 0);
}

}  // namespace test
