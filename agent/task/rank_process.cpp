#include "agent/task/rank_process.h"

#include <sys/wait.h>

#include <cerrno>

#include "base/process_stat.h"

namespace agent::task {

RankProcess::RankProcess(const process::GangPlan& plan) : gang_(plan) {
  const auto failure = gang_.open_gate();
  if (!failure) return;
  while (::waitpid(pid(), nullptr, 0) < 0 && errno == EINTR) {
  }
  throw *failure;
}

void RankProcess::signal(int number) const {
  gang_.signal(0, number);
}

bool RankProcess::stopped() const {
  try {
    const auto stat = base::read_stat(pid());
    return stat && stat->is_stopped();
  } catch (const std::exception&) {
    return false;  // the kernel cannot be asked
  }
}

}  // namespace agent::task
