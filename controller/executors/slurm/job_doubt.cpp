#include "executors/slurm/job_doubt.h"

#include <algorithm>

namespace executors::on_slurm {

bool JobIdentity::is(const ::slurm::ListedJob& job) const {
  if (job.id != id) return false;
  if (job.comment == comment || (submitted && job.submitted == submitted)) return true;
  return !work_folder.empty() && job.work_folder == work_folder;
}

void JobDoubt::confirm(core::Millis now) {
  if (!first_) first_ = now;
  confirmed_twice_ = now - *first_ >= kApart;
  if (confirmed_twice_) pause_ = std::min(2 * pause_, kLongestPause);
  last_ = now;
}

}  // namespace executors::on_slurm
