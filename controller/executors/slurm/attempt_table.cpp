#include "controller/executors/slurm/attempt_files.h"
#include "controller/executors/slurm/poller.h"

namespace executors::on_slurm {

void AttemptTable::follow(Followed what, const std::optional<core::SchedulerJob>& job,
                          const std::filesystem::path& folder, const SubmissionRecord& record, core::Time handed_over,
                          core::Millis now) {
  const auto key = what.key;
  const bool in_array = !record.set_folder.empty();
  Tracked tracked{.attempt = SlurmAttempt(std::move(what), now),
                  .job = {job ? ::slurm::JobId{job->number, job->element} : ::slurm::JobId{}, record.comment,
                          in_array ? record.set_folder : folder.string()},
                  .folder = folder,
                  .log = in_array ? log_of_element({record.set_folder, record.index}) : folder / "slurm.log",
                  .submitted_before = handed_over,
                  .exclude = record.exclude,
                  .left_out = record.left_out};
  // The record of the array says when the array was submitted. An earlier musterd has one for each element, too.
  const bool asks_array = in_array && record.tried_at_ms == 0;
  const auto submitted = asks_array ? read_record(record.set_folder).value_or(SubmissionRecord{}) : record;
  tracked.submitted_after = core::Time(core::Millis(submitted.tried_at_ms));
  // Not urgent: its tasks tell that it runs.
  locked([&](State& state) {
    state.attempts.try_emplace(key, std::move(tracked));
    ++state.begun;
  });
  wake();
}

}  // namespace executors::on_slurm
