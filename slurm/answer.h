#pragma once

#include <cassert>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "slurm/job_id.h"
#include "slurm/refusal.h"

namespace slurm {

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

/// Whether Slurm accepted the submission is unknown. Look for the job's comment in Slurm's list before submitting
/// again.
struct Unsure {
  std::string why;
  /// sbatch ended by itself, with words that prove nothing. None of its requests can be on its way any more.
  bool ended = false;
};

/// The answer of a command that was carried out and returns no value.
struct Done {};

/// What Slurm answered: a value, a refusal, or no answer.
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
  /// What `use` makes of the value. A refusal and a missing answer stay as they are.
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

}  // namespace slurm
