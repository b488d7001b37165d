#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp {

/// Results of chosen operations of a recomputed part. The first call of the part keeps them, and its second call, in
/// backward, takes them instead of computing them. So a part may give up what is cheap to compute, such as norms and
/// activation functions, and keep what is not. As the policies of PyTorch's selective activation checkpointing
/// (torch.utils.checkpoint.create_selective_checkpoint_contexts).
///
/// A model calls such an operation through of(), below autograd: in the forward of a function whose backward needs no
/// value beside what its forward has seen and given. An operation that draws random numbers must not be kept, because
/// the numbers after it would differ.
class KeptResults {
  struct Call;

 public:
  using Compute = std::function<std::vector<at::Tensor>()>;

  /// The names of the operations that are kept, such as "linear".
  explicit KeptResults(std::set<std::string, std::less<>> operations) : operations_(std::move(operations)) {}

  /// True if a part is called on this thread that keeps the results of this operation.
  static bool keeps(std::string_view operation);
  /// The results of `compute`: computed, and kept by a first call; or, in a second one, as they were kept. Throws
  /// c10::Error naming both operations where the second call of a part asks in another order than the first.
  static std::vector<at::Tensor> of(std::string_view operation, const Compute& compute);

  /// While it lives, this thread calls the part for the first time, and its results are kept in `results`.
  class First {
   public:
    explicit First(KeptResults& results);
    ~First();
    First(const First&) = delete;
    First& operator=(const First&) = delete;

   private:
    Call* outer_;
  };
  /// While it lives, this thread calls the part again. `tensors` are those of tensors(), wherever they were meanwhile.
  class Again {
   public:
    Again(const KeptResults& results, std::vector<at::Tensor> tensors);
    ~Again();
    Again(const Again&) = delete;
    Again& operator=(const Again&) = delete;

   private:
    Call* outer_;
  };

  /// Takes the kept tensors out. What is left knows which operation has which of them.
  std::vector<at::Tensor> take_tensors() { return std::exchange(tensors_, {}); }

 private:
  struct Result {
    std::string operation;
    std::size_t tensors = 0;
  };

  static thread_local Call* current_;

  std::set<std::string, std::less<>> operations_;
  std::vector<Result> results_;  // in the order of the first call
  std::vector<at::Tensor> tensors_;
};

}  // namespace fsdp
