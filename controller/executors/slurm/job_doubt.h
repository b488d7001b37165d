#pragma once

#include <optional>
#include <string>

#include "core/types.h"
#include "slurm/scheduler.h"

namespace executors::on_slurm {

/// What identifies the job of an attempt in Slurm. A number alone proves nothing: slurmctld gives numbers again that it
/// has lost. A comment alone proves nothing either: an admin may change it.
struct JobIdentity {
  ::slurm::JobId id;
  std::string comment;
  std::string work_folder;                   // the folder that its script was submitted with
  std::optional<::slurm::Time> submitted{};  // nullopt: Slurm has not told it yet

  /// The number fits, and so does the comment, the moment of submission or the folder.
  bool is(const ::slurm::ListedJob& job) const;
};

/// Whether a listing may be believed about one attempt.
///
/// A listing can contradict what is known for certain: it lacks a job whose number sbatch gave before the listing was
/// asked for, or it shows a job as waiting that was seen to run. Either the listing is old or incomplete (a cache,
/// a proxy, a standby slurmctld), or slurmctld has lost its state. The job is then asked for by number. An answer that
/// has the job proves the listing wrong. An answer that agrees with the listing confirms the loss. One answer is enough
/// for a job of which nobody is heard. A job whose tasks are heard needs two, kApart from each other.
///
/// All threads that ask for listings share the doubt. It holds only what asking has shown. Each listing is compared
/// anew with what is known.
///
/// Pure: times are passed in.
class JobDoubt {
 public:
  /// A listing contradicts what is known.
  void raise() { raised_ = true; }
  /// The newest listing contradicts nothing, or asking has shown that it was wrong.
  void settle() { *this = {}; }
  bool raised() const { return raised_; }
  /// Slurm is to be asked for the job by number now. The pause grows while the loss is confirmed again and again.
  bool wants_asking(core::Millis now) const { return raised_ && (!last_ || now - *last_ >= pause_); }
  /// When Slurm was last asked for the job; nullopt: never.
  std::optional<core::Millis> asked_at() const { return last_; }
  /// Slurm was asked for the job by number, and agrees with the listing.
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

}  // namespace executors::on_slurm
