#include "fsdp/comm/node/shared_file.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fsdp::node {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Mapping::~Mapping() {
  if (start_ != nullptr) ::munmap(start_, bytes_);
}

SharedFile SharedFile::create() {
  // Beyond this limit ftruncate() would end the process by SIGXFSZ.
  rlimit limit{};
  TORCH_CHECK(::getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                  (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= static_cast<rlim_t>(kBytes)),
              "the limit of file sizes (ulimit -f) is below ", kBytes, " bytes");
  SharedFile file(::memfd_create("fsdp", MFD_CLOEXEC));
  TORCH_CHECK(file.descriptor() >= 0, "memfd_create: ", std::strerror(errno));
  TORCH_CHECK(::ftruncate(file.descriptor(), kBytes) == 0, "ftruncate of a memfd: ", std::strerror(errno));
  return file;
}

SharedFile SharedFile::open(pid_t pid, int fd) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  SharedFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  TORCH_CHECK(file.descriptor() >= 0, path, ": ", std::strerror(errno));
  return file;
}

Mapping SharedFile::map(std::int64_t offset, std::int64_t bytes, bool writable) const {
  void* start = ::mmap(nullptr, static_cast<std::size_t>(bytes), writable ? PROT_READ | PROT_WRITE : PROT_READ,
                       MAP_SHARED, descriptor(), offset);
  TORCH_CHECK(start != MAP_FAILED, "mmap of ", bytes, " bytes of shared memory: ", std::strerror(errno),
              "; is the address space limited (ulimit -v)?");
  return {start, static_cast<std::size_t>(bytes)};
}

void SharedFile::discard(std::int64_t offset, std::int64_t bytes) const {
  ::fallocate(descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

std::int64_t whole_pages(std::int64_t bytes) {
  static const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

}  // namespace fsdp::node
