#include "fsdp/comm/node/peer.h"

#include <c10/util/Exception.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace fsdp::node {

std::string Card::text() const {
  return host + " " + std::to_string(pid) + " " + std::to_string(fd) + " " + std::to_string(key);
}

Card Card::parse(const std::string& text) {
  std::istringstream in(text);
  Card card;
  TORCH_CHECK(in >> card.host >> card.pid >> card.fd >> card.key, "not a rank's card: ", text);
  return card;
}

std::string this_host() {
  std::string boot;
  TORCH_CHECK(std::ifstream("/proc/sys/kernel/random/boot_id") >> boot, "no boot id in /proc");
  std::array<char, 64> space{};
  TORCH_CHECK(::readlink("/proc/self/ns/pid", space.data(), space.size() - 1) > 0,
              "/proc/self/ns/pid: ", std::strerror(errno));
  return boot + "/" + space.data() + "/" + std::to_string(::geteuid());
}

Peer::Peer(const Card& card)
    : pid_(card.pid),
      process_(static_cast<int>(::syscall(SYS_pidfd_open, card.pid, 0))),
      file_(SharedFile::open(card.pid, card.fd)),
      board_pages_(file_.map(0, whole_pages(sizeof(Board)), /*writable=*/false)),
      board_(reinterpret_cast<const Board*>(board_pages_.start())) {
  TORCH_CHECK(process_.get() >= 0, "pidfd_open of process ", pid_, ": not possible");
  TORCH_CHECK(board_->key == card.key, "process ", pid_, " is another one than the rank");
}

bool Peer::is_dead() const {
  pollfd process{process_.get(), POLLIN, 0};
  return ::poll(&process, 1, 0) == 1;
}

const char* Peer::data(const SharedSpan& span) {
  auto known = blocks_.find(span.block);
  if (known == blocks_.end())
    known = blocks_.emplace(span.block, file_.map(span.block, span.block_bytes, /*writable=*/false)).first;
  return known->second.start() + span.offset;
}

}  // namespace fsdp::node
