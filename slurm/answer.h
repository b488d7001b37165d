#pragma once

#include <cassert>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/command.h"
#include "slurm/slurm_job.h"

namespace slurm {

/// The meaning of a command's failure.
enum class Failure {
  kRefused,  // Slurm said no
  kNotSent,  // no request was sent: no controller, no configuration, no munge, no program
  kLost,     // a request was sent, and its answer was lost
};

struct FailureText {
  Failure kind = Failure::kRefused;
  std::string why;  // on one line, without the command's own prefixes
};

/// Classifies a failure by how the command ended and by what it wrote to stderr.
FailureText explain_failure(const std::string& program, const base::CommandResult& result);

/// The text that a command wrote to stderr, or to stdout if stderr is empty, as one line of at most 2,000 characters.
std::string complaint(const std::string& program, const base::CommandResult& result);

/// The meaning of the words of a refusal.
///
/// Only words that Slurm writes after it has discarded a submission are a refusal. All other failures are kUnknown,
/// because Slurm may still have accepted the submission. After kUnknown, look for the job in Slurm's list before
/// anything else. One example: a site's wrapper fails after the real sbatch has succeeded.
enum class Refusal {
  kUsers,      // nothing was accepted; no later try can succeed, because the cluster lacks what the job file asks for
  kTooMany,    // nothing was accepted, because of a limit on the number of queued jobs
  kForNow,     // nothing was accepted, because of a state of Slurm that passes by itself
  kArray,      // nothing was accepted, because the array is larger than MaxArraySize, or has no elements
  kForbidden,  // the change needs the rights of an operator or admin of Slurm
  kUnknown,    // the words prove nothing
};

/// No later try of the same submission can succeed.
bool is_final(Refusal kind);

/// Classifies the words of sbatch, given without "sbatch: error: ".
Refusal understand_refusal(const std::string& words);
/// Classifies the words of scontrol that refuses to change a job: kForbidden or kUnknown.
Refusal understand_refused_change(const std::string& words);

/// Slurm understood the request and refused it. The text is Slurm's own, without "sbatch: error: ".
struct Refused {
  std::string why;
  Refusal kind = Refusal::kUsers;  // set for submissions and for changes of a job
};

/// Slurm gave no answer, answered too late, or gave an answer that the parser does not understand. Says nothing about
/// any job. Ask again later.
struct Unreachable {
  std::string why;
};

/// The outcome is unknown: Slurm may have accepted the submission, or not. Look for the job's comment in Slurm's list
/// before submitting again.
struct Unsure {
  std::string why;
  /// sbatch ended by itself, with words that prove nothing. None of its requests can be on its way any more.
  bool ended = false;
};

/// The answer of a command that was carried out and returns no value.
struct Done {};

/// The answer of Slurm: a value, a refusal, or none.
template <class T>
class Answer {
 public:
  Answer(T value) : state_(std::move(value)) {}                // NOLINT: a value converts to an answer
  Answer(Refused refused) : state_(std::move(refused)) {}      // NOLINT
  Answer(Unreachable missing) : state_(std::move(missing)) {}  // NOLINT

  bool has_value() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return has_value(); }
  const T& value() const {
    assert(has_value());
    return std::get<T>(state_);
  }
  const T& operator*() const { return value(); }
  const T* operator->() const { return &value(); }

  bool refused() const { return std::holds_alternative<Refused>(state_); }
  bool refused(Refusal kind) const {
    const auto* no = std::get_if<Refused>(&state_);
    return no != nullptr && no->kind == kind;
  }
  bool unreachable() const { return std::holds_alternative<Unreachable>(state_); }
  /// Why there is no value; empty if there is one.
  std::string why() const {
    if (const auto* no = std::get_if<Refused>(&state_)) return no->why;
    if (const auto* none = std::get_if<Unreachable>(&state_)) return none->why;
    return {};
  }
  /// Returns what `use` makes of the value. A refusal and a missing answer stay as they are.
  template <class Use>
  std::invoke_result_t<Use, const T&> then(Use&& use) const {
    if (has_value()) return use(value());
    if (const auto* no = std::get_if<Refused>(&state_)) return *no;
    return std::get<Unreachable>(state_);
  }

 private:
  std::variant<T, Refused, Unreachable> state_;
};

using SubmitAnswer = std::variant<JobId, Refused, Unreachable, Unsure>;

/// Classifies an sbatch that did not succeed. The answer is Unsure, unless sbatch's own last words prove that nothing
/// was accepted.
///
/// Only two kinds of lines prove anything:
/// - "Batch job submission failed: ..." is the last line that sbatch writes before it ends.
/// - A complaint about options or configuration comes before sbatch sends anything.
/// An earlier line such as "Slurm temporarily unable to accept job, sleeping and retrying" proves nothing, because
/// sbatch goes on and may succeed. A site's wrapper may call the real sbatch by another name ("sbatch.real"), may add
/// lines, and may fail after the real sbatch has succeeded. Output that names a job's number means that there is a job.
SubmitAnswer failed_submission(const base::CommandResult& result);

}  // namespace slurm
