#include "fsdp/comm/node/board.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace fsdp::node {

void Board::ring() {
  bell.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool sleep_until_rung(const Board& board, std::uint32_t seen, std::chrono::nanoseconds limit) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const timespec time{limit.count() / kSecond, limit.count() % kSecond};
  return ::syscall(SYS_futex, &board.bell, FUTEX_WAIT, seen, &time, nullptr, 0) == 0 || errno != ETIMEDOUT;
}

}  // namespace fsdp::node
