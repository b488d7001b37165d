#pragma once

#include <optional>
#include <string>

#include "core/types.h"
#include "slurm/scheduler.h"

namespace runtime::on_slurm {

/// What makes a job in Slurm an attempt's own. A number alone proves nothing: slurmctld gives numbers again that it has
/// lost. A comment alone does not either: an admin may change it.
struct JobIdentity {
  ::slurm::JobId id;
  std::string comment;
  std::string work_folder;                   // that its script was submitted with
  std::optional<::slurm::Time> submitted{};  // once Slurm has told it

  /// The number, and one of: comment, moment of submission, folder.
  bool is(const ::slurm::ListedJob& job) const;
};

/// Whether one attempt's place in a listing may be believed.
///
/// A listing can contradict what is known for certain: it lacks a job whose number sbatch gave us before the listing
/// was asked for, or it shows a job as waiting that was seen to run. Either the listing is old or incomplete (a cache,
/// a proxy, a standby slurmctld), or slurmctld has lost its state. The job is then asked for by number. An answer that
/// has the job proves the listing wrong. An answer that agrees with the listing confirms the loss. One answer is enough
/// for a job of which nobody is heard. A job whose tasks are heard needs two, kApart from each other.
///
/// All threads that list share it. So whether a listing contradicts what is known is found out anew for the listing
/// that is judged; here is only what asking has shown.
///
/// Pure: times are passed in.
class JobDoubt {
 public:
  /// A listing contradicts what is known.
  void raise() { raised_ = true; }
  /// The newest listing does not, or asking has shown that it was wrong.
  void settle() { *this = {}; }
  bool raised() const { return raised_; }
  /// Slurm is to be asked for the job by number now. A loss that is confirmed again and again is asked for less often.
  bool wants_asking(core::Millis now) const { return raised_ && (!last_ || now - *last_ >= pause_); }
  /// When it was asked for last; nullopt: never.
  std::optional<core::Millis> asked_at() const { return last_; }
  /// Slurm, asked by number, says what the listing says.
  void confirm(core::Millis now);
  /// The listing may be believed. `heard`: tasks of the job are heard.
  bool is_believed(bool heard) const { return heard ? confirmed_twice_ : first_.has_value(); }

  static constexpr core::Millis kApart{3000};
  static constexpr core::Millis kLongestPause{60'000};

 private:
  bool raised_ = false, confirmed_twice_ = false;
  std::optional<core::Millis> first_, last_;
  core::Millis pause_{kApart};
};

}  // namespace runtime::on_slurm
