#include "fsdp/comm/communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <mutex>
#include <optional>

#include "fsdp/comm/transport.h"
#include "fsdp/comm/watch/calls.h"
#include "fsdp/comm/watch/watcher.h"
#include "fsdp/tracing/error_text.h"
#include "fsdp/tracing/trace.h"

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

Traffic& Traffic::operator+=(const Traffic& other) {
  collectives += other.collectives;
  wire_bytes += other.wire_bytes;
  gathered_bytes += other.gathered_bytes;
  scattered_bytes += other.scattered_bytes;
  waited += other.waited;
  return *this;
}

Traffic Traffic::operator-(const Traffic& before) const {
  return {collectives - before.collectives, wire_bytes - before.wire_bytes, gathered_bytes - before.gathered_bytes,
          scattered_bytes - before.scattered_bytes, waited - before.waited};
}

/// Facts that a trace shows of a collective.
struct Communicator::Traced {
  const char* kind;
  std::string_view whose;
  std::int64_t bytes;  // of one rank's part
  std::string text() const { return std::string(kind) + (whose.empty() ? "" : " ") + std::string(whose); }
};

/// Counts a communicator's collectives, and shows them to the watcher. Collectives under way keep it.
class Communicator::Meter {
 public:
  explicit Meter(bool host_waits) : host_waits_(host_waits) {}

  void watch(std::shared_ptr<watch::Watcher> watcher) {
    watcher_ = std::move(watcher);
    calls_ = std::make_shared<watch::Calls>();
  }
  void record_in(std::shared_ptr<Tracer> tracer) { tracer_ = std::move(tracer); }
  const std::shared_ptr<watch::Calls>& calls() const { return calls_; }
  void forget() const {
    if (watcher_) watcher_->forget(*calls_);
  }

  /// Returns the collective's number.
  std::uint64_t begin(const char* kind, std::string_view whose, std::int64_t bytes) {
    if (notes_) noted_.push_back({kind, std::string(whose), bytes});
    return calls_ ? calls_->start(kind, whose, bytes) : 0;
  }

  void note(bool on) {
    if (on) noted_.clear();
    noted_traffic_ = on ? traffic() : traffic() - noted_traffic_;
    noted_traffic_.waited = {};
    notes_ = on;
  }

  void repeat() {
    if (watcher_ && !noted_.empty()) TORCH_CHECK(!watcher_->has_failed(), watcher_->verdict());
    count(noted_traffic_);
    if (!calls_) return;
    for (const Noted& call : noted_) calls_->start(call.kind, call.whose, call.bytes);
  }

  /// Calls `part` of a collective. An error says what the watcher knows of its cause.
  template <typename Part>
  auto watched(std::uint64_t number, const Part& part) const {
    // A device goes on after its collectives were aborted, with unknown values.
    if (watcher_ && !host_waits_) TORCH_CHECK(!watcher_->has_failed(), watcher_->verdict());
    try {
      const watch::Stay stay(calls_.get(), number);
      return part();
    } catch (const std::exception& error) {
      if (watcher_) explain(error);
      throw;
    }
  }

  /// watched() for a part that waits. `call` is what a trace shows of it.
  template <typename Part>
  void timed(const Traced& call, std::uint64_t number, const Part& part) {
    if (!host_waits_) {
      const Tracer::Scope scope(tracer_.get(), "wait for", call.whose.empty() ? call.kind : call.whose, call.bytes);
      return watched(number, part);
    }
    const auto begin = Tracer::Clock::now();
    watched(number, part);
    const auto end = Tracer::Clock::now();
    count({.waited = end - begin});
    if (is_traced()) tracer_->add(Tracer::Row::kHost, "wait for", call.text(), call.bytes, begin, end);
  }

  bool is_traced() const { return tracer_ && tracer_->is_on(); }
  /// A collective from its start, until now.
  void trace_collective(const Traced& call, Tracer::Clock::time_point begin) const {
    if (is_traced())
      tracer_->add(Tracer::Row::kCollective, call.kind, call.whose, call.bytes, begin, Tracer::Clock::now());
  }

  void count(const Traffic& more) {
    const std::lock_guard<std::mutex> lock(mutex_);
    traffic_ += more;
  }
  Traffic traffic() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return traffic_;
  }

 private:
  void explain(const std::exception& error) const {
    const std::string why = watcher_->explain(*calls_);
    const std::string text = text_of(error);
    TORCH_CHECK(why.empty() || text.find(why) != std::string::npos, text, "; ", why);
  }

  /// A collective that a graph repeats.
  struct Noted {
    const char* kind;
    std::string whose;
    std::int64_t bytes;
  };

  const bool host_waits_;
  bool notes_ = false;
  std::vector<Noted> noted_;
  Traffic noted_traffic_;
  std::shared_ptr<watch::Watcher> watcher_;
  std::shared_ptr<watch::Calls> calls_;  // null: not watched
  std::shared_ptr<Tracer> tracer_;       // may be null
  mutable std::mutex mutex_;
  Traffic traffic_;
};

template <typename Start>
std::unique_ptr<Pending> Communicator::start(const char* kind, std::string_view whose, std::int64_t bytes,
                                             const Start& start) {
  const Traced call{kind, whose, bytes};
  const std::uint64_t number = meter_->begin(kind, whose, bytes);
  std::unique_ptr<Pending> pending = meter_->watched(number, start);
  const auto begin = meter_->is_traced() ? std::optional(Tracer::Clock::now()) : std::nullopt;
  return make_pending([meter = meter_, call, number, begin, pending = std::move(pending)] {
    meter->timed(call, number, [&] { pending->wait(); });
    if (begin) meter->trace_collective(call, *begin);
  });
}

Communicator::Communicator(int rank, int world_size, at::Device device, std::unique_ptr<Transport> transport)
    : rank_(rank), world_size_(world_size), device_(device), transport_(std::move(transport)) {
  TORCH_CHECK(world_size == 1 || transport_ != nullptr, "a communicator of ", world_size, " ranks needs a transport");
  meter_ = std::make_shared<Meter>(transport_ == nullptr || transport_->host_waits());
}

Communicator::~Communicator() {
  meter_->forget();
}

void Communicator::watch(const std::shared_ptr<watch::Watcher>& watcher, std::string group, std::vector<int> ranks) {
  if (world_size_ == 1) return;
  meter_->watch(watcher);
  watcher->watch(meter_->calls(), {std::move(group), std::move(ranks), transport_->host_waits(),
                                   [this](const std::string& why) { transport_->abort(why); }});
}

void Communicator::record_in(std::shared_ptr<Tracer> tracer) {
  meter_->record_in(std::move(tracer));
}

void Communicator::note_calls(bool on) {
  meter_->note(on);
}

void Communicator::repeat_calls() {
  meter_->repeat();
}

std::shared_ptr<PeerMemory> Communicator::peer_memory() const {
  return transport_ ? transport_->peer_memory() : nullptr;
}

void Communicator::trim() {
  if (transport_) transport_->trim();
}

Links Communicator::links() const {
  return transport_ ? transport_->links() : Links();
}

Traffic Communicator::traffic() const {
  return meter_->traffic();
}

std::unique_ptr<Pending> Communicator::all_gather_into(const at::Tensor& buffer, std::string_view whose) {
  if (world_size_ == 1 || buffer.numel() == 0) return std::make_unique<Done>();
  TORCH_CHECK(buffer.is_contiguous() && buffer.dim() == 1 && buffer.numel() % world_size_ == 0,
              "all-gather wants a contiguous 1-D buffer of equal chunks for ", world_size_, " ranks, got shape ",
              buffer.sizes());
  const std::int64_t chunk = bytes_of(buffer) / world_size_;
  const std::int64_t sent = chunk * (world_size_ - 1);
  meter_->count({.collectives = 1, .wire_bytes = sent, .gathered_bytes = sent});
  return start("all-gather", whose, chunk, [&] { return transport_->all_gather_into(buffer, whose); });
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
  const std::int64_t chunk = bytes_of(output);
  const std::int64_t sent = chunk * (world_size_ - 1);
  meter_->count({.collectives = 1, .wire_bytes = sent, .scattered_bytes = sent});
  return start("reduce-scatter", whose, chunk, [&] { return transport_->reduce_scatter(input, output, whose); });
}

std::unique_ptr<Pending> Communicator::start_all_reduce(const at::Tensor& tensor, std::string_view whose) {
  TORCH_CHECK(tensor.is_contiguous(), "all-reduce wants a contiguous tensor, got strides ", tensor.strides());
  if (world_size_ == 1 || tensor.numel() == 0) return std::make_unique<Done>();
  const std::int64_t bytes = bytes_of(tensor);
  meter_->count({.collectives = 1, .wire_bytes = 2 * bytes * (world_size_ - 1) / world_size_});
  return start("all-reduce", whose, bytes, [&] { return transport_->start_all_reduce(tensor.view({-1}), whose); });
}

void Communicator::all_reduce(at::Tensor& tensor, Reduction reduction) {
  if (world_size_ == 1) return;
  const std::int64_t bytes = bytes_of(tensor);
  meter_->count({.collectives = 1, .wire_bytes = 2 * bytes * (world_size_ - 1) / world_size_});
  const char* kind = reduction == Reduction::kSum ? "all-reduce" : "all-reduce's maximum";
  meter_->timed({kind, {}, bytes}, meter_->begin(kind, {}, bytes), [&] { transport_->all_reduce(tensor, reduction); });
}

double Communicator::all_reduce(double value, Reduction reduction) {
  if (world_size_ == 1) return value;
  at::Tensor tensor = at::scalar_tensor(value, at::TensorOptions().dtype(at::kDouble).device(device_)).reshape({1});
  all_reduce(tensor, reduction);
  return tensor.item<double>();
}

void Communicator::broadcast(at::Tensor& tensor, int root) {
  if (world_size_ == 1 || tensor.numel() == 0) return;
  const std::int64_t bytes = bytes_of(tensor);
  meter_->count({.collectives = 1, .wire_bytes = bytes * (world_size_ - 1) / world_size_});
  const std::uint64_t number = meter_->begin("broadcast", "rank " + std::to_string(root), bytes);
  const auto carry = [&](at::Tensor& carried) {
    meter_->timed({"broadcast", {}, bytes}, number, [&] { transport_->broadcast(carried, root); });
  };
  if (tensor.is_contiguous() && tensor.device() == device_) return carry(tensor);
  at::Tensor carried = tensor.to(device_).contiguous();
  carry(carried);
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
  meter_->count({.collectives = 1});
  meter_->timed({"barrier", {}, 0}, meter_->begin("barrier", {}, 0), [&] { transport_->barrier(); });
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
