#include "fsdp/memory/storage.h"

#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>

namespace fsdp {
namespace {

// LibTorch can close a StorageImpl (release_data_and_set_meta_custom_data_ptr_error_msg_) and has no call that opens it
// again. Autograd keeps the StorageImpl of what it has saved, so another one cannot take its place. An explicit
// instantiation may name a private member ([temp.spec.general]), so this is C++ like any other. A LibTorch that names
// the member otherwise does not compile here.
using Flag = bool c10::StorageImpl::*;
Flag closed_flag();
template <Flag flag>
struct ClosedFlag {
  friend Flag closed_flag() { return flag; }
};
template struct ClosedFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

void set_memory(c10::StorageImpl& storage, c10::DataPtr memory, bool is_closed) {
  storage.*closed_flag() = is_closed;
  storage.set_data_ptr_noswap(std::move(memory));  // also looks at the flag
}

c10::StorageImpl& storage_of(const at::Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

at::Tensor without_memory(std::int64_t numel, const at::TensorOptions& options) {
  const at::Tensor tensor = at::empty({0}, options);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({numel});
  fill_storage(tensor, c10::DataPtr(nullptr, tensor.device()), numel * tensor.element_size());
  return tensor;
}

void fill_storage(const at::Tensor& tensor, c10::DataPtr memory, std::int64_t bytes) {
  set_memory(storage_of(tensor), std::move(memory), /*is_closed=*/false);
  storage_of(tensor).set_nbytes(static_cast<std::size_t>(bytes));
}

// The storage goes on saying how many bytes it has, because LibTorch refuses views beyond them, in words of its own.
void free_storage(const at::Tensor& tensor) {
  set_memory(storage_of(tensor), c10::DataPtr(nullptr, tensor.device()), /*is_closed=*/true);
}

void name_storage(const at::Tensor& tensor, std::string closed) {
  storage_of(tensor).get_extra_meta().custom_data_ptr_error_msg_ = std::move(closed);
}

std::int64_t storage_bytes(const at::Tensor& tensor) {
  if (!tensor.defined() || storage_of(tensor).*closed_flag()) return 0;
  return static_cast<std::int64_t>(storage_of(tensor).nbytes());
}

bool share_storage(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() && b.has_storage() && a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

}  // namespace fsdp
