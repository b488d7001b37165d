#include "fsdp/engine/kept_results.h"

#include <c10/util/Exception.h>

#include <iterator>

namespace fsdp {

/// A call of a part on this thread.
struct KeptResults::Call {
  KeptResults* first = nullptr;          // in a first call
  const KeptResults* again = nullptr;    // in a second one
  std::vector<at::Tensor> tensors = {};  // of the second one
  std::size_t next_result = 0, next_tensor = 0;

  const std::set<std::string, std::less<>>& operations() const { return (first ? first : again)->operations_; }

  std::vector<at::Tensor> keep(std::string_view operation, std::vector<at::Tensor> results) const {
    first->results_.push_back({std::string(operation), results.size()});
    first->tensors_.insert(first->tensors_.end(), results.begin(), results.end());
    return results;
  }

  std::vector<at::Tensor> take(std::string_view operation) {
    const auto& results = again->results_;
    const bool is_there = next_result < results.size();
    TORCH_CHECK(is_there && results[next_result].operation == operation,
                "recompute: the second call of a part asks for ", operation, " where the first one computed ",
                is_there ? results[next_result].operation : "nothing more",
                "; a part must compute the same operations in the same order each time");
    std::vector<at::Tensor> out;
    // Autograd notes in a result how it came about, so each call gets tensors of its own with the same memory.
    for (std::size_t i = 0; i < results[next_result].tensors; ++i) {
      const at::Tensor& kept = tensors[next_tensor++];
      out.push_back(kept.defined() ? kept.detach() : kept);
    }
    ++next_result;
    return out;
  }
};

thread_local KeptResults::Call* KeptResults::current_ = nullptr;

bool KeptResults::keeps(std::string_view operation) {
  return current_ != nullptr && current_->operations().contains(operation);
}

std::vector<at::Tensor> KeptResults::of(std::string_view operation, const Compute& compute) {
  if (!keeps(operation)) return compute();
  return current_->first ? current_->keep(operation, compute()) : current_->take(operation);
}

KeptResults::First::First(KeptResults& results) : outer_(current_) {
  current_ = new Call{.first = &results};
}

KeptResults::First::~First() {
  delete std::exchange(current_, outer_);
}

KeptResults::Again::Again(const KeptResults& results, std::vector<at::Tensor> tensors) : outer_(current_) {
  current_ = new Call{.again = &results, .tensors = std::move(tensors)};
}

KeptResults::Again::~Again() {
  delete std::exchange(current_, outer_);
}

}  // namespace fsdp
