#include <ATen/core/grad_mode.h>

#include <exception>
#include <future>
#include <utility>

#include "fsdp/files/checkpoint.h"
#include "fsdp/files/checkpoint_taken.h"
#include "fsdp/files/durable.h"
#include "fsdp/tracing/error_text.h"

namespace fsdp {

// The thread uses all members, so it ends before they go.
Checkpointer::~Checkpointer() {
  if (background_) background_->look(/*blocks=*/true);
}

void Checkpointer::begin_save(const CheckpointState& state, std::optional<std::int64_t> also_keep) {
  wait();
  if (!background_) background_ = std::make_unique<Background>(mesh().make_control());
  background_->copies.begin();
  auto taken = std::make_shared<Taken>(take(state, also_keep, &background_->copies));
  const std::string late = failure_of([&] { background_->copies.finish(); });
  if (taken->problem.empty()) taken->problem = late;
  background_->running = std::async(std::launch::async, [this, taken, removal = std::move(removal_)]() mutable {
    const at::NoGradGuard no_grad;
    Background::Outcome outcome;
    try {
      std::vector<std::string> warnings;
      if (removal.valid()) warnings = removal.get();
      std::vector<Aside> old;
      SavedCheckpoint saved = save(*taken, *background_->ranks, old);
      for (std::string& text : saved.warnings) warnings.push_back(std::move(text));
      for (std::string& text : remove(old)) warnings.push_back(std::move(text));
      saved.warnings = std::move(warnings);
      outcome.saved = std::move(saved);
    } catch (...) {
      outcome.error = std::current_exception();
    }
    return outcome;
  });
}

std::optional<SavedCheckpoint> Checkpointer::poll() {
  if (!background_) return {};
  background_->look(/*blocks=*/false);
  if (!background_->outcome || background_->outcome->error) return {};
  return std::move(std::exchange(background_->outcome, std::nullopt)->saved);
}

std::optional<SavedCheckpoint> Checkpointer::wait() {
  if (!background_) return {};
  background_->look(/*blocks=*/true);
  auto outcome = std::exchange(background_->outcome, std::nullopt);
  if (!outcome) return {};
  if (outcome->error) std::rethrow_exception(outcome->error);
  return std::move(outcome->saved);
}

std::int64_t Checkpointer::snapshot_bytes() const {
  return background_ ? background_->copies.bytes() : 0;
}

}  // namespace fsdp
