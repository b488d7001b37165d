#include "fsdp/communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "fsdp/transport.h"

namespace fsdp {
namespace {

constexpr std::int64_t kMaxBroadcastBytes = std::int64_t{1} << 30;

std::int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

}  // namespace

void discard(std::unique_ptr<Pending>& pending) {
  if (!pending) return;
  try {
    pending->wait();
  } catch (const std::exception&) {
    // Told by the failure that is under way.
  }
  pending.reset();
}

Communicator::Communicator(int rank, int world_size, at::Device device, std::unique_ptr<Transport> transport)
    : rank_(rank), world_size_(world_size), device_(device), transport_(std::move(transport)) {
  TORCH_CHECK(world_size == 1 || transport_ != nullptr, "a communicator of ", world_size, " ranks needs a transport");
}

Communicator::~Communicator() = default;

std::shared_ptr<PeerMemory> Communicator::peer_memory() const {
  return transport_ ? transport_->peer_memory() : nullptr;
}

void Communicator::trim() {
  if (transport_) transport_->trim();
}

void Communicator::count(std::int64_t bytes) {
  wire_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  collectives_.fetch_add(1, std::memory_order_relaxed);
}

std::unique_ptr<Pending> Communicator::all_gather_into(const at::Tensor& buffer, std::string_view whose) {
  if (world_size_ == 1 || buffer.numel() == 0) return std::make_unique<Done>();
  TORCH_CHECK(buffer.is_contiguous() && buffer.dim() == 1 && buffer.numel() % world_size_ == 0,
              "all-gather wants a contiguous 1-D buffer of equal chunks for ", world_size_, " ranks, got shape ",
              buffer.sizes());
  count(bytes_of(buffer) / world_size_ * (world_size_ - 1));
  return transport_->all_gather_into(buffer, whose);
}

void Communicator::gather(const at::Tensor& buffer, const at::Tensor& mine, std::string_view whose) {
  buffer.narrow(0, rank_ * mine.numel(), mine.numel()).copy_(mine);
  all_gather_into(buffer, whose)->wait();
}

std::unique_ptr<Pending> Communicator::reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                                      std::string_view whose) {
  TORCH_CHECK(input.is_contiguous() && output.is_contiguous() && input.numel() == output.numel() * world_size_ &&
                  input.scalar_type() == output.scalar_type(),
              "reduce-scatter wants ", world_size_, " equal chunks, got input ", input.sizes(), " and output ",
              output.sizes());
  if (world_size_ == 1) {
    if (!output.is_alias_of(input)) output.copy_(input);
    return std::make_unique<Done>();
  }
  if (input.numel() == 0) return std::make_unique<Done>();
  count(bytes_of(output) * (world_size_ - 1));
  return transport_->reduce_scatter(input, output, whose);
}

std::unique_ptr<Pending> Communicator::start_all_reduce(const at::Tensor& tensor, std::string_view whose) {
  TORCH_CHECK(tensor.is_contiguous(), "all-reduce wants a contiguous tensor, got strides ", tensor.strides());
  if (world_size_ == 1 || tensor.numel() == 0) return std::make_unique<Done>();
  count(2 * bytes_of(tensor) * (world_size_ - 1) / world_size_);
  return transport_->start_all_reduce(tensor.view({-1}), whose);
}

void Communicator::all_reduce(at::Tensor& tensor, Reduction reduction) {
  if (world_size_ == 1) return;
  count(2 * bytes_of(tensor) * (world_size_ - 1) / world_size_);
  transport_->all_reduce(tensor, reduction);
}

double Communicator::all_reduce(double value, Reduction reduction) {
  if (world_size_ == 1) return value;
  at::Tensor tensor = at::scalar_tensor(value, at::TensorOptions().dtype(at::kDouble).device(device_)).reshape({1});
  all_reduce(tensor, reduction);
  return tensor.item<double>();
}

void Communicator::broadcast(at::Tensor& tensor, int root) {
  if (world_size_ == 1 || tensor.numel() == 0) return;
  count(bytes_of(tensor) * (world_size_ - 1) / world_size_);
  if (tensor.is_contiguous() && tensor.device() == device_) {
    transport_->broadcast(tensor, root);
    return;
  }
  at::Tensor carried = tensor.to(device_).contiguous();
  transport_->broadcast(carried, root);
  tensor.copy_(carried);
}

std::string Communicator::broadcast(std::string bytes, int root) {
  if (world_size_ == 1) return bytes;
  TORCH_CHECK(static_cast<std::int64_t>(bytes.size()) <= kMaxBroadcastBytes, "broadcast of ", bytes.size(),
              " bytes: at most ", kMaxBroadcastBytes);
  at::Tensor size = at::empty({1}, at::kLong).fill_(static_cast<std::int64_t>(bytes.size()));
  broadcast(size, root);
  at::Tensor carried = at::empty({size.item<std::int64_t>()}, at::kByte);
  if (carried.numel() == 0) return {};
  if (rank_ == root) std::memcpy(carried.mutable_data_ptr(), bytes.data(), bytes.size());
  broadcast(carried, root);
  return std::string(static_cast<const char*>(carried.const_data_ptr()), static_cast<std::size_t>(carried.numel()));
}

void Communicator::barrier() {
  if (world_size_ == 1) return;
  count(0);
  transport_->barrier();
}

std::string Communicator::agree(const std::string& error) {
  // The lowest failing rank is the one farthest from the end of the world, so a maximum finds it.
  const double mine = error.empty() ? 0 : world_size_ - rank_;
  const int distance = static_cast<int>(all_reduce(mine, Reduction::kMax));
  if (distance == 0) return {};
  const int failed = world_size_ - distance;
  return "rank " + std::to_string(failed) + ": " + broadcast(error, failed);
}

}  // namespace fsdp
