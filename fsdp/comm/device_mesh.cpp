#include "fsdp/comm/device_mesh.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <numeric>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "fsdp/comm/bounded.h"
#include "fsdp/comm/sockets/connect.h"
#include "fsdp/comm/transport.h"
#include "fsdp/comm/watch/watcher.h"

#ifdef MUSTER_WITH_CUDA
#include <c10/cuda/CUDAFunctions.h>

#include "fsdp/comm/nccl/nccl_settings.h"
#endif

namespace fsdp {
namespace {

constexpr const char* kShard = "shard";
constexpr const char* kReplicate = "replicate";
constexpr const char* kControl = "control";
constexpr const char* kReduce = "reduce";
constexpr const char* kPostForward = "post_forward_";
/// Transports that know their timeout tell it first, with more words.
constexpr std::chrono::seconds kConnectMargin{2};

std::string place(const std::string& host, std::uint16_t port) {
  return host + ":" + std::to_string(port);
}

/// `of_hosts`: for what hosts agree on, and not for the exchange of parts.
std::unique_ptr<Transport> make_transport(const c10::intrusive_ptr<c10d::Store>& store, bool of_hosts,
                                          bool shared_memory, [[maybe_unused]] bool shares_gpus,
                                          const TransportOptions& options) {
  const c10::Device device = options.device;
  if (device.is_cpu()) {
    auto shared = shared_memory ? make_shared_memory_transport(store, options) : nullptr;
    if (shared) return shared;
    // A tree of two ranks has the same one connection, and takes a little longer.
    return of_hosts && options.world_size > 2 ? make_tree_transport(store, options)
                                              : make_socket_transport(store, options);
  }
#ifdef MUSTER_WITH_CUDA
  // NCCL refuses two ranks on one GPU.
  if (device.is_cuda() && shares_gpus)
    return make_staged_transport(make_socket_transport(store, options), options.rank, options.world_size);
  if (device.is_cuda()) return make_nccl_transport(store, options);
#endif
  TORCH_CHECK(false, "mesh: device ", device, " is not served by this build; use cpu",
              device.is_cuda() ? ", or build with MUSTER_WITH_CUDA" : "");
}

#ifdef MUSTER_WITH_CUDA
/// True if any two ranks have the same GPU. Collective.
bool any_share_a_gpu(Transport& control, int rank, int world_size, c10::Device device) {
  const auto mine = gpu_identity(device);
  const at::Tensor all = at::zeros({world_size, static_cast<std::int64_t>(mine.size())}, at::kByte);
  auto* bytes = all.mutable_data_ptr<std::uint8_t>();
  std::copy(mine.begin(), mine.end(), bytes + rank * mine.size());
  control.all_gather_into(all.view({-1}), "identities of GPUs")->wait();
  std::set<std::string> different;
  for (int r = 0; r < world_size; ++r)
    different.emplace(reinterpret_cast<const char*>(bytes) + r * mine.size(), mine.size());
  return different.size() < static_cast<std::size_t>(world_size);
}
#endif

/// Sets the calling thread's device.
void make_current([[maybe_unused]] c10::Device device) {
#ifdef MUSTER_WITH_CUDA
  if (device.is_cuda()) c10::cuda::set_device(device.index());
#endif
}

/// Where this rank has come to while a communicator comes up.
std::string came_key(int rank) {
  return "rank " + std::to_string(rank) + " has come";
}

/// Who is waited for, for people.
std::string absent_from(c10d::Store& keys, int ranks) {
  std::vector<int> absent;
  for (int rank = 0; rank < ranks; ++rank)
    if (!keys.check({came_key(rank)})) absent.push_back(rank);
  if (absent.empty()) return "all of its ranks have come, and their devices do not connect";
  return watch::names_of(absent) + " of its " + std::to_string(ranks) + (absent.size() == 1 ? " has" : " have") +
         " not come";
}

}  // namespace

ListeningStore listen_store(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout) {
  // TCPStore itself would bind to every interface.
  const std::string whose = "rendezvous store on " + place(host, port) + ": ";
  const auto addresses = net::resolve(host, std::to_string(port), whose);
  base::Fd socket;
  for (const addrinfo* one = addresses.get(); one != nullptr && !socket; one = one->ai_next)
    socket = net::listen_on(*one, /*reuses=*/true);
  TORCH_CHECK(socket, whose, std::strerror(errno),
              "; the host must be an address of this machine and the port free (0 takes any)");
  c10d::TCPStoreOptions options;
  options.port =
      static_cast<std::uint16_t>(std::stoi(net::port_of(socket.get(), "rendezvous store: no port of its socket: ")));
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = timeout;
  options.masterListenFd = socket.get();
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
    socket.release();
    return {std::move(store), options.port};
  } catch (const std::exception& error) {
    socket.release();  // the store's server may have closed the socket already
    TORCH_CHECK(false, "rendezvous store on ", place(host, options.port), ": ", error.what());
  }
}

c10::intrusive_ptr<c10d::Store> connect_store(const std::string& host, std::uint16_t port,
                                              std::chrono::milliseconds timeout, const OnLate& on_late,
                                              std::chrono::milliseconds late_after) {
  std::optional<watch::LateWord> word;
  if (on_late) word.emplace(late_after, on_late, "rank 0", "it serves no rendezvous store at " + place(host, port));
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const std::exception& error) {
    TORCH_CHECK(false, "rendezvous store at ", place(host, port), " not reached within ", timeout.count(),
                " ms (is rank 0 up?): ", error.what());
  }
}

c10::Device device_of_rank([[maybe_unused]] int local_rank) {
#ifdef MUSTER_WITH_CUDA
  const int gpus = c10::cuda::device_count();
  if (gpus > 0) return {c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % gpus)};
#endif
  return c10::kCPU;
}

DeviceMesh::DeviceMesh(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, const MeshOptions& options)
    : rank_(rank), world_size_(world_size), options_(options) {
  check();
#ifdef MUSTER_WITH_CUDA
  make_current(options.device);
  if (options.device.is_cuda()) {
    nccl::set_where_unset(nccl::settings(options.timeout));  // before there are threads
  }
#else
  TORCH_CHECK(options.device.is_cpu(), "mesh: device ", options.device,
              " is not served by this build; use cpu, or build with MUSTER_WITH_CUDA");
#endif
  TORCH_CHECK(world_size == 1 || store, "mesh: ", world_size, " ranks need a rendezvous store");
  if (world_size > 1 && options.watch_patience.count() > 0)
    make_watcher(*c10::make_intrusive<c10d::PrefixStore>(options.key_prefix + "/watcher", store));
  const std::weak_ptr<watch::Watcher> watcher = watcher_;
  const auto meeting_of = [prefix = options.key_prefix, store, watcher, given_up = given_up_](const MeshGroup& group) {
    return c10::make_intrusive<watch::MeetingStore>(prefix + "/" + group.axis + "-" + std::to_string(group.number),
                                                    store, watcher, given_up);
  };
  const auto transport_of = [options, meeting_of](const MeshGroup& group, bool shares_gpus) {
    const auto own_keys = meeting_of(group);
    const bool of_hosts = group.axis == kControl;
    const TransportOptions wanted{group.rank,
                                  group.size,
                                  options.timeout,
                                  options.interface_address,
                                  [own_keys] { own_keys->check_all_here(); },
                                  of_hosts ? c10::Device(c10::kCPU) : options.device};
    return make_transport(own_keys, of_hosts, options.shared_memory, shares_gpus, wanted);
  };
  keys_of_ = meeting_of;
  try {
    // control() comes first, because the ranks tell each other their GPUs over it.
    const auto first = std::make_shared<std::unique_ptr<Transport>>();
    if (world_size > 1) *first = transport_of({kControl, 0, rank, world_size}, false);
#ifdef MUSTER_WITH_CUDA
    shares_gpus_ = *first && options.device.is_cuda() && any_share_a_gpu(**first, rank, world_size, options.device);
#endif
    bool separate = false;
#ifdef MUSTER_WITH_CUDA
    separate = options.device.is_cuda() && !shares_gpus_ && nccl::keeps_launch_order(nccl_version());
#endif
    if (!options_.separate_reductions) options_.separate_reductions = separate;
    make_ = [transport_of, first, shares_gpus = shares_gpus_](const MeshGroup& group) {
      return group.axis == kControl && *first ? std::move(*first) : transport_of(group, shares_gpus);
    };
    connect();
  } catch (const std::exception&) {
    // The end of a rank shows in its peers' connections first, where it has no name.
    if (watcher_) watcher_->check_all_here(2 * options.watch_patience);
    throw;
  }
  if (watcher_) watch_groups();
}

DeviceMesh::DeviceMesh(int rank, int world_size, const MakeTransport& make, const MeshOptions& options)
    : rank_(rank), world_size_(world_size), options_(options), make_(make) {
  check();
  connect();
}

void DeviceMesh::check() const {
  TORCH_CHECK(world_size_ >= 1 && rank_ >= 0 && rank_ < world_size_, "mesh: rank ", rank_, " in a world of ",
              world_size_);
  if (options_.axes.empty()) return;
  std::int64_t ranks = 1;
  std::string text;
  std::set<std::string> names{kControl, kReduce};
  for (const MeshAxis& axis : options_.axes) {
    TORCH_CHECK(axis.size >= 1, "mesh: axis ", axis.name, " of ", axis.size, " ranks: want 1 or more");
    TORCH_CHECK(names.insert(axis.name).second && !axis.name.starts_with(kPostForward), "mesh: axis ", axis.name,
                ": want another name for each axis, and none \"", kControl, "\", \"", kReduce, "\" or \"", kPostForward,
                "...\"");
    ranks *= axis.size;
    text += (text.empty() ? "" : " x ") + axis.name + " " + std::to_string(axis.size);
  }
  TORCH_CHECK(ranks == world_size_, "mesh: ", text, " is ", ranks, " ranks, and there are ", world_size_);
}

/// Makes the transports of these groups and connects them, all at one time. Null: the mesh's transports have none.
std::vector<std::unique_ptr<Transport>> DeviceMesh::come_up(const std::vector<MeshGroup>& groups) const {
  // A thread that does not end keeps what it uses.
  const auto made = std::make_shared<std::vector<std::unique_ptr<Transport>>>(groups.size());
  std::vector<NamedWork> works;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const MeshGroup& group = groups[i];
    const auto keys = keys_of_ ? keys_of_(group) : nullptr;
    auto& transport = (*made)[i];
    if (!keys) transport = make_(group);  // given transports are made in their order
    if (!keys && !transport) continue;
    const auto work = [made, &transport, keys, group, make = make_, device = options_.device] {
      make_current(device);
      if (keys) {
        transport = make(group);
        keys->set(came_key(group.rank), "1");
      }
      if (transport) transport->connect();
    };
    std::function<std::string()> why_late;
    if (keys) why_late = [keys, size = group.size] { return absent_from(*keys, size); };
    works.push_back({"the communicator of " + group.axis, work, why_late});
  }
  TogetherOptions together{.limit = options_.timeout + kConnectMargin,
                           .give_up = [given_up = given_up_] { given_up->store(true); }};
  if (watcher_) together.check = [watcher = watcher_] { watcher->check_all_here(); };
  run_together(std::move(works), together);

  const auto of_device = [](const auto& transport) { return transport && !transport->host_waits(); };
  if (std::ranges::any_of(*made, of_device)) {
    const auto warm_up = [made, of_device, device = options_.device] {
      make_current(device);
      for (const auto& transport : *made)
        if (of_device(transport)) transport->warm_up();
    };
    run_together({{"the first collective of each communicator", warm_up}}, together);
  }
  return std::move(*made);
}

/// Finds this rank's group of each axis. Ranks are numbered along the last axis first.
void DeviceMesh::connect() {
  const std::vector<MeshAxis> axes =
      options_.axes.empty() ? std::vector<MeshAxis>{{kShard, world_size_}} : options_.axes;
  std::vector<MeshGroup> groups;
  const MeshGroup* shard = nullptr;
  groups.reserve(axes.size() + 2);
  int stride = world_size_;
  for (const MeshAxis& axis : axes) {
    const int block = stride;  // ranks that differ in this axis and later ones
    stride /= axis.size;
    groups.push_back({axis.name, rank_ / block * stride + rank_ % stride, rank_ % block / stride, axis.size});
    if (axis.name == kShard) shard = &groups.back();
  }
  const bool separate = shard != nullptr && shard->size > 1 && options_.separate_reductions.value_or(false);
  if (separate) groups.push_back({kReduce, shard->number, shard->rank, shard->size});
  if (world_size_ > 1) groups.push_back({kControl, controls_++, rank_, world_size_});

  std::vector<MeshGroup> of_several;
  std::ranges::copy_if(groups, std::back_inserter(of_several), [](const MeshGroup& group) { return group.size > 1; });
  std::vector<std::unique_ptr<Transport>> transports = come_up(of_several);
  auto next = transports.begin();
  for (const MeshGroup& group : groups) {
    std::unique_ptr<Transport> transport = group.size > 1 ? std::move(*next++) : nullptr;
    const c10::Device device = group.axis == kControl ? c10::Device(c10::kCPU) : options_.device;
    if (!transport && (group.axis == kControl || group.axis == kReduce)) continue;
    auto made = std::make_shared<Communicator>(group.rank, group.size, device, std::move(transport));
    if (group.axis == kControl) {
      control_ = std::move(made);
    } else if (group.axis == kReduce) {
      reduce_ = std::move(made);
    } else {
      axes_.push_back({group.axis, made});
      if (group.axis == kShard) shard_number_ = group.number;
      if (group.axis == kShard) shard_ = made;
      if (group.axis == kReplicate && group.size > 1) replicate_ = made;
    }
  }
  if (!shard_) shard_ = std::make_shared<Communicator>(0, 1, options_.device, nullptr);
  if (!reduce_) reduce_ = shard_;
  if (world_size_ == 1) control_ = std::make_shared<Communicator>(0, 1, c10::kCPU, nullptr);
  if (!control_) {
    TORCH_CHECK(shard_->world_size() == world_size_, "mesh: no transport for control");
    control_ = shard_;
  }
  for (Communicator* communicator : of_device()) communicator->record_in(tracer_);
  control_->record_in(tracer_);
}

std::unique_ptr<Communicator> DeviceMesh::make_control() {
  std::unique_ptr<Transport> transport;
  if (world_size_ > 1) {
    transport = std::move(come_up({{kControl, controls_++, rank_, world_size_}}).front());
    TORCH_CHECK(transport, "mesh: no transport for another thread; give one for each group of \"control\"");
  }
  auto control = std::make_unique<Communicator>(rank_, world_size_, c10::kCPU, std::move(transport));
  if (watcher_) watch_control(*control, controls_ - 1);
  return control;
}

Communicator& DeviceMesh::axis(std::string_view name) {
  std::string names;
  for (Axis& axis : axes_) {
    if (axis.name == name) return *axis.communicator;
    names += (names.empty() ? "" : ", ") + axis.name;
  }
  TORCH_CHECK(false, "mesh: no axis \"", std::string(name), "\"; it has: ", names);
}

std::shared_ptr<Communicator> DeviceMesh::shard_group(int ranks) {
  const int all = shard_->world_size();
  TORCH_CHECK(ranks > 1 && ranks < all && all % ranks == 0, "mesh: groups of ", ranks, " of the ", all,
              " ranks that parameters are sharded over: want a divisor of ", all, " other than 1 and ", all);
  if (const auto made = shard_groups_.find(ranks); made != shard_groups_.end()) return made->second;
  const MeshGroup group{kPostForward + std::to_string(ranks), shard_number_ * (all / ranks) + shard_->rank() / ranks,
                        shard_->rank() % ranks, ranks};
  auto made = std::make_shared<Communicator>(group.rank, ranks, options_.device, std::move(come_up({group}).front()));
  made->record_in(tracer_);
  if (watcher_) watch_shard_group(*made);
  const std::lock_guard<std::mutex> lock(mutex_);
  return shard_groups_[ranks] = std::move(made);
}

/// All communicators but control(), each once.
std::vector<Communicator*> DeviceMesh::of_device() const {
  std::vector<Communicator*> all;
  if (reduce_ != shard_) all.push_back(reduce_.get());
  for (const Axis& axis : axes_)
    if (axis.communicator != control_) all.push_back(axis.communicator.get());
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [size, group] : shard_groups_) all.push_back(group.get());
  return all;
}

void DeviceMesh::note_calls(bool on) {
  for (Communicator* communicator : of_device()) communicator->note_calls(on);
}

void DeviceMesh::repeat_calls() {
  for (Communicator* communicator : of_device()) communicator->repeat_calls();
}

Traffic DeviceMesh::traffic() const {
  Traffic all = control_->traffic();
  for (const Communicator* communicator : of_device()) all += communicator->traffic();
  return all;
}

void DeviceMesh::watch(const c10::intrusive_ptr<c10d::Store>& store) {
  if (world_size_ == 1) return;
  make_watcher(*store);
  watch_groups();
}

void DeviceMesh::make_watcher(c10d::Store& store) {
  watcher_ = std::make_shared<watch::Watcher>(
      store, rank_, world_size_,
      watch::WatchOptions{options_.watch_patience, options_.late_after, options_.on_late, options_.timeout,
                          options_.interface_address});
}

void DeviceMesh::watch_groups() const {
  for (const Axis& axis : axes_) watch_group(*axis.communicator, axis.name, ranks_along(*axis.communicator));
  if (reduce_ != shard_) watch_group(*reduce_, kReduce, ranks_along(*shard_));
  for (const auto& [size, group] : shard_groups_) watch_shard_group(*group);
  if (control_ != shard_) watch_control(*control_, 0);
}

/// The ranks of the mesh in this rank's group of an axis, in the group's order. The groups are those that connect()
/// finds.
std::vector<int> DeviceMesh::ranks_along(const Communicator& wanted) const {
  std::vector<int> ranks;
  int stride = world_size_;
  for (const Axis& axis : axes_) {
    const int size = axis.communicator->world_size(), block = stride;
    stride /= size;
    if (axis.communicator.get() != &wanted) continue;
    for (int i = 0; i < size; ++i) ranks.push_back(rank_ / block * block + i * stride + rank_ % stride);
  }
  return ranks;
}

/// The watcher's name of a group is equal on the group's ranks, and on no others.
void DeviceMesh::watch_group(Communicator& group, const std::string& name, std::vector<int> ranks) const {
  const bool all = static_cast<int>(ranks.size()) == world_size_;
  std::string unique = name + (all ? "" : " from rank " + std::to_string(ranks.front()) + " on");
  group.watch(watcher_, std::move(unique), std::move(ranks));
}

void DeviceMesh::watch_shard_group(Communicator& group) const {
  const std::vector<int> all = ranks_along(*shard_);
  const auto first = all.begin() + shard_->rank() - group.rank();
  watch_group(group, "groups of " + std::to_string(group.world_size()), {first, first + group.world_size()});
}

void DeviceMesh::watch_control(Communicator& control, int number) const {
  std::vector<int> ranks(static_cast<std::size_t>(world_size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  control.watch(watcher_, number == 0 ? "control" : "control " + std::to_string(number), std::move(ranks));
}

}  // namespace fsdp
