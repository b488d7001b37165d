#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/files/checkpoint.h"

namespace fsdp {

/// Copies of tensors in memory of the host, pinned for tensors of a GPU. The memory is kept for the next round, so only
/// the first round allocates. Not thread-safe, but the copies of a finished round may be read by any thread.
class Snapshot {
 public:
  /// Begins a round. Copies of the one before are overwritten.
  void begin() { taken_.swap(kept_), taken_.clear(), device_.reset(); }
  /// Begins to copy `tensor`. Returns the copy, which has its values after finish(). The `key` finds the memory of the
  /// round before.
  at::Tensor take(const std::string& key, const at::Tensor& tensor);
  /// Waits for the copies of a GPU, and frees memory of keys that this round has not taken.
  void finish();

  /// Memory of the copies.
  std::int64_t bytes() const;

 private:
  std::map<std::string, at::Tensor> taken_, kept_;
  std::optional<c10::Device> device_;
};

}  // namespace fsdp

// State that a save has between its begin and its end.

namespace fsdp {

/// Data that a save takes of the run when it begins.
struct Checkpointer::Taken {
  std::int64_t step = 0;
  std::optional<std::int64_t> also_keep;
  Json manifest;  // without the list of files; on rank 0 alone
  std::vector<std::pair<std::string, at::Tensor>> slices;
  std::map<std::string, at::Tensor> own;
  std::string problem;  // why this rank could not take its part; empty for success
};

/// See [Note: saving beside the training].
struct Checkpointer::Background {
  struct Outcome {
    std::optional<SavedCheckpoint> saved;
    std::exception_ptr error;
  };

  explicit Background(std::unique_ptr<Communicator> own) : ranks(std::move(own)) {}

  /// Takes over the outcome of the thread, if it is over or `blocks` lets the call wait for it.
  void look(bool blocks) {
    if (!running.valid()) return;
    if (blocks || running.wait_for(std::chrono::seconds(0)) == std::future_status::ready) outcome = running.get();
  }

  std::unique_ptr<Communicator> ranks;
  Snapshot copies;
  std::optional<Outcome> outcome;  // of a save that is over
  std::future<Outcome> running;
};

}  // namespace fsdp
