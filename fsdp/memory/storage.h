#pragma once
// Storages whose memory comes and goes below tensors that stay.
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <string>

namespace fsdp {

// [Note: closed storage] The engine frees parameters and gradients, while the module, autograd and their users keep
// tensors of them. A storage without memory is closed: whoever reads or writes one of its tensors gets a c10::Error
// with the text of name_storage(). Without that the process would end by SIGSEGV, without a word. Shapes of such
// tensors are known, and views of them can be made. A storage is open while it has memory.

/// A contiguous tensor [numel] that believes to have memory and has none: views of it can be made, not read. Fill or
/// free its storage before use.
at::Tensor without_memory(std::int64_t numel, const at::TensorOptions& options);
/// Points the storage of `tensor` at `memory`. Tensors that share the storage follow, and their versions stay.
void fill_storage(const at::Tensor& tensor, c10::DataPtr memory, std::int64_t bytes);
/// Takes the memory of the storage of `tensor`, and closes it; see [Note: closed storage].
void free_storage(const at::Tensor& tensor);
/// What is said of an access while the storage of `tensor` is closed: a sentence that names the owner and the remedy.
void name_storage(const at::Tensor& tensor, std::string closed);
/// Bytes of memory that the storage of a tensor has: 0 when it is closed, or the tensor undefined.
std::int64_t storage_bytes(const at::Tensor& tensor);
/// Whether both tensors have memory of one storage, now or later. Also of closed ones, unlike Tensor::is_alias_of().
bool share_storage(const at::Tensor& a, const at::Tensor& b);

}  // namespace fsdp
