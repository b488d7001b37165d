#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

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
