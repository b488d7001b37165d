#include "controller/rpc/read_guard.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>

#include <spdlog/spdlog.h>

#include <cerrno>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "controller/common/tokens.h"
#include "controller/net/address.h"

namespace rpc {
namespace {

// Kinds of frames and their flags, RFC 9113, section 6.
constexpr std::uint8_t kData = 0, kHeaders = 1, kReset = 3, kContinuation = 9;
constexpr std::uint8_t kEndStream = 1, kPadded = 8;
/// Bytes that gRPC keeps of a frame of data besides the data.
constexpr std::size_t kSlice = 32;

std::uint32_t big_endian(const unsigned char* bytes, std::size_t count) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value = value << 8 | bytes[i];
  return value;
}

constexpr const char* kHeader = "muster-probe";

using std::chrono::duration_cast;
using std::chrono::seconds;

/// In a crowd not each connection is told of.
constexpr seconds kTellEvery{10};

/// In gRPC's words: "ipv4:127.0.0.1:53594", "ipv6:%5B::1%5D:53594". Empty: it has no port.
std::string peer_of(int socket) {
  const auto end = net::peer_of(socket);
  if (!end) return {};
  const auto host = net::text_of(end->address);
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "ipv6:%5B" + host + "%5D:" : "ipv4:" + host + ":") + std::to_string(end->port);
}

std::string_view port_of(std::string_view peer) {
  return peer.substr(peer.rfind(':') + 1);
}

}  // namespace

const char* Inspector::take(std::string_view bytes, Time now) {
  const auto greeting = std::min(preface_, bytes.size());
  preface_ -= greeting;
  bytes.remove_prefix(greeting);
  while (!bytes.empty()) {
    if (header_bytes_ < kFrameHeader) {
      const auto part = std::min(kFrameHeader - header_bytes_, bytes.size());
      std::copy_n(bytes.begin(), part, header_.begin() + static_cast<std::ptrdiff_t>(header_bytes_));
      header_bytes_ += part;
      bytes.remove_prefix(part);
      if (header_bytes_ < kFrameHeader) return nullptr;
      if (const auto* fault = begin_frame(now)) return fault;
    } else {
      const auto part = std::min(payload_, bytes.size());
      payload_ -= part;
      if (kind_ == kData) {
        if (const auto* fault = take_data(bytes.substr(0, part), now)) return fault;
      } else if (const auto* fault = hold(part)) {
        return fault;
      }
      bytes.remove_prefix(part);
    }
    if (payload_ == 0) end_frame();
  }
  return nullptr;
}

const char* Inspector::begin_frame(Time now) {
  payload_ = big_endian(header_.data(), 3);
  kind_ = header_[3];
  flags_ = header_[4];
  stream_ = big_endian(header_.data() + 5, 4) & 0x7FFFFFFF;
  if (const auto* fault = hold(kind_ == kData ? kFrameHeader + kSlice : kFrameHeader)) return fault;
  switch (kind_) {
    case kData:
      // gRPC refuses padding, too.
      return (flags_ & kPadded) != 0 ? "padded data" : nullptr;
    case kHeaders:
      block_ = payload_;
      if (block_ > limits_.header_block) return "headers that are too long";
      if (!begin_call(now)) return "too many calls at once";
      return (flags_ & kEndStream) != 0 || find() != calls_.end() ? nullptr : open(now);
    case kContinuation:
      block_ += payload_;
      return block_ > limits_.header_block ? "headers that are too long" : nullptr;
    default:
      return nullptr;
  }
}

const char* Inspector::take_data(std::string_view data, Time now) {
  while (!data.empty()) {
    auto call = find();
    if (call == calls_.end()) {
      if (const auto* fault = open(now)) return fault;
      call = std::prev(calls_.end());
    }
    while (call->prefix < kPrefix && !data.empty()) {
      // A compressed message may grow a thousandfold, and no client of muster compresses.
      if (call->prefix == 0 && data.front() != 0) return "a compressed message";
      if (call->prefix++ > 0) call->size = call->size << 8 | static_cast<unsigned char>(data.front());
      data.remove_prefix(1);
      if (const auto* fault = hold(1)) return fault;
      if (call->prefix < kPrefix) continue;
      if (call->size > limits_.message) return "a message that is too long";
      call->left = call->size;
    }
    if (call->prefix < kPrefix) return nullptr;
    const auto part = std::min(call->left, data.size());
    call->left -= part;
    if (const auto* fault = hold(part)) return fault;
    data.remove_prefix(part);
    if (call->left == 0) close(call);
  }
  return nullptr;
}

const char* Inspector::hold(std::size_t bytes) {
  if (!calls_.empty()) held_ += bytes;
  return held_ > limits_.unfinished ? "messages that are unfinished are too long" : nullptr;
}

void Inspector::end_frame() {
  header_bytes_ = 0;
  const bool may_end = kind_ == kData || kind_ == kHeaders;
  const bool is_over = kind_ == kReset || (may_end && (flags_ & kEndStream) != 0);
  if (!is_over) return;
  if (const auto call = find(); call != calls_.end()) close(call);
}

const char* Inspector::open(Time now) {
  if (calls_.size() >= limits_.calls) return "too many calls without a message";
  calls_.push_back({stream_, now});
  return nullptr;
}

bool Inspector::begin_call(Time now) {
  if (now - burst_since_ > ReadLimits::kBurstEvery) {
    burst_since_ = now;
    begun_ = 0;
  }
  return ++begun_ <= limits_.burst || limits_.burst == 0;
}

ReadingProbe::ReadingProbe(common::Reading& reading, std::function<void(int)> connect)
    : reading_(reading),
      connect_(std::move(connect)),
      secret_(common::new_token()),
      loop_("reading", "how late heartbeats are read was not measured", true, [this] {
        send();
        return std::nullopt;
      }) {}

void ReadingProbe::start() {
  loop_.start();
  reading_.attach([this](std::uint64_t n) {
    const std::lock_guard lock(mutex_);
    next_ = n;
    loop_.wake();
  });
}

void ReadingProbe::stop() {
  reading_.detach();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (sent_ != nullptr) sent_->TryCancel();
  }
  loop_.close();
}

bool ReadingProbe::connect_if_broken() {
  if (stub_) return true;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return false;
  connect_(ends[0]);
  stub_ = muster::v1::RankService::NewStub(grpc::CreateInsecureChannelFromFd("musterd", ends[1]));
  return true;
}

// Waits for the answer, which comes after the word was read. A word that is asked for meanwhile is sent next.
void ReadingProbe::send() {
  grpc::ClientContext context;
  muster::v1::HeartbeatRequest word;
  muster::v1::HeartbeatResponse answer;
  {
    const std::lock_guard lock(mutex_);
    word.set_step(static_cast<std::int64_t>(std::exchange(next_, 0)));
    if (stopping_ || word.step() == 0) return;
    sent_ = &context;
  }
  context.AddMetadata(kHeader, secret_);
  const bool is_read = connect_if_broken() && stub_->Heartbeat(&context, word, &answer).ok();
  if (!is_read) {
    stub_.reset();
    reading_.lost();
  }
  const std::lock_guard lock(mutex_);
  sent_ = nullptr;
}

bool ReadingProbe::took(const grpc::CallbackServerContext& context, const muster::v1::HeartbeatRequest& word) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kHeader);
  if (found == metadata.end() || found->second != secret_) return false;
  reading_.arrived(static_cast<std::uint64_t>(word.step()));
  return true;
}

/// The watched sockets of all guards of this process, by their numbers.
struct Sockets {
  static constexpr std::size_t kParts = 64;
  struct Part {
    std::mutex mutex;
    std::unordered_map<int, std::shared_ptr<Watched>> watched;
  };
  std::array<Part, kParts> parts;
  std::atomic<std::size_t> count{0};

  /// Never destroyed: threads of gRPC read until the very end.
  static Sockets& all() {
    static auto* const sockets = new Sockets;
    return *sockets;
  }
  Part& part(int socket) { return parts[static_cast<std::size_t>(socket) % kParts]; }

  void put(const std::shared_ptr<Watched>& one) {
    auto& in = part(one->socket_);
    const std::lock_guard lock(in.mutex);
    auto& place = in.watched[one->socket_];
    // One of this number was closed, and nobody has noticed yet.
    if (place) {
      place->guard_.forget(place);
    } else {
      ++count;
    }
    place = one;
  }
  /// Forgets it. The caller holds the part's lock.
  void erase(Part& in, int socket) {
    const auto found = in.watched.find(socket);
    const auto one = std::move(found->second);
    in.watched.erase(found);
    --count;
    one->guard_.forget(one);
  }
  /// Shuts the connection down and forgets it. gRPC closes the socket. The caller holds the part's lock.
  void shut(Part& in, Watched& one, const char* why) {
    if (net::cookie_of(one.socket_) == one.cookie_) {
      ReadGuard::tell(one, why);
      one.guard_.note(one);
      ::shutdown(one.socket_, SHUT_RDWR);
    }
    erase(in, one.socket_);
  }
  void close(const Watched& wanted, const char* why) {
    auto& in = part(wanted.socket_);
    const std::lock_guard lock(in.mutex);
    const auto found = in.watched.find(wanted.socket_);
    if (found != in.watched.end() && found->second.get() == &wanted) shut(in, *found->second, why);
  }
  template <typename Choose>
  void shut_those(const Choose& why_of) {
    for (auto& in : parts) {
      const std::lock_guard lock(in.mutex);
      std::vector<std::pair<std::shared_ptr<Watched>, const char*>> chosen;
      for (const auto& [_, one] : in.watched) {
        if (const char* why = why_of(*one)) chosen.emplace_back(one, why);
      }
      for (const auto& [one, why] : chosen) shut(in, *one, why);
    }
  }
  void forget_all_of(const ReadGuard& guard) {
    for (auto& in : parts) {
      const std::lock_guard lock(in.mutex);
      std::vector<int> its;
      for (const auto& [socket, one] : in.watched) {
        if (&one->guard_ == &guard) its.push_back(socket);
      }
      for (const int socket : its) erase(in, socket);
    }
  }

  /// gRPC has read `bytes` bytes. False: it must not see them, since the connection is shut down.
  bool allows(int socket, const msghdr& message, std::size_t bytes) {
    if (count == 0) return true;
    auto& in = part(socket);
    const std::lock_guard lock(in.mutex);
    const auto found = in.watched.find(socket);
    if (found == in.watched.end()) return true;
    auto& one = *found->second;
    const char* fault = nullptr;
    const auto now = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < message.msg_iovlen && bytes > 0 && fault == nullptr; ++i) {
      const auto part = std::min(bytes, message.msg_iov[i].iov_len);
      fault = one.inspector_.take({static_cast<const char*>(message.msg_iov[i].iov_base), part}, now);
      bytes -= part;
    }
    if (fault == nullptr) fault = one.guard_.account(one);
    if (fault == nullptr) return true;
    const bool is_it = net::cookie_of(socket) == one.cookie_;  // else the number is another socket's by now
    shut(in, one, fault);
    return !is_it;
  }
  void has_ended(int socket) {
    if (count == 0) return;
    auto& in = part(socket);
    const std::lock_guard lock(in.mutex);
    if (in.watched.contains(socket)) erase(in, socket);
  }
};

ReadGuard::~ReadGuard() {
  Sockets::all().forget_all_of(*this);
}

std::string ReadGuard::why_full(const RankOf& rank, Inspector::Time now) const {
  const std::lock_guard lock(mutex_);
  if (const auto shut = shut_.find(rank); shut != shut_.end() && now - shut->second < kOutside) {
    return "max_connections_of_rank: a connection of rank " + std::to_string(rank.rank) +
           " broke a limit and was closed; try again in a second";
  }
  const auto found = places_.find(rank.attempt);
  if (found == places_.end()) return {};
  const auto of_rank = found->second.of_rank.find(rank.rank);
  if (of_rank != found->second.of_rank.end() && of_rank->second >= kMostOfRank) {
    return "max_connections_of_rank: rank " + std::to_string(rank.rank) + " has " + std::to_string(kMostOfRank) +
           " connections open, the most of one rank; try again later";
  }
  if (found->second.on_trial < kMostOnTrial) return {};
  return "max_connections_of_attempt: " + std::to_string(kMostOnTrial) +
         " connections of this attempt wait for their first answer; try again later";
}

bool ReadGuard::watch(int socket, std::string_view said, std::optional<RankOf> rank, Inspector::Time now) {
  const auto one = std::shared_ptr<Watched>(
      new Watched(*this, socket, net::cookie_of(socket), peer_of(socket), rank, rules_.limits, now));
  if (one->inspector_.take(said, now) != nullptr) return false;
  {
    const std::lock_guard lock(mutex_);
    by_port_.emplace(port_of(one->peer_), one);
    if (rank) {
      auto& places = places_[rank->attempt];
      ++places.on_trial;
      ++places.of_rank[rank->rank];
    }
  }
  account(*one);
  Sockets::all().put(one);
  return true;
}

std::shared_ptr<Watched> ReadGuard::find(const std::string& peer) const {
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = by_port_.equal_range(port_of(peer));
  const auto same = std::find_if(begin, end, [&](const auto& entry) { return entry.second->peer_ == peer; });
  if (same != end) return same->second;
  // An address may be written in several ways.
  return begin != end && std::next(begin) == end ? begin->second : nullptr;
}

void ReadGuard::heard(const std::shared_ptr<Watched>& one) {
  const std::lock_guard lock(mutex_);
  if (!one->rank_ || one->is_forgotten_ || one->is_heard_.exchange(true)) return;
  --places_.find(one->rank_->attempt)->second.on_trial;
  ++heard_;
}

void ReadGuard::close(const std::shared_ptr<Watched>& one, const char* why) {
  Sockets::all().close(*one, why);
}

void ReadGuard::sweep(Inspector::Time now) {
  Sockets::all().shut_those([&](const Watched& one) -> const char* {
    if (&one.guard_ != this) return nullptr;
    if (one.inspector_.is_overdue(now)) return "a message was missing or unfinished for too long";
    if (one.rank_ && !one.is_heard_ && now - one.since_ > kTrial) return "no call was accepted in time";
    return net::cookie_of(one.socket_) == one.cookie_ ? nullptr : "it is closed";
  });
  const std::lock_guard lock(mutex_);
  std::erase_if(shut_, [&](const auto& one) { return now - one.second >= kOutside; });
}

ReadGuard::Counts ReadGuard::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts{by_port_.size(), 0, held_};
  for (const auto& [_, places] : places_) counts.on_trial += places.on_trial;
  return counts;
}

const char* ReadGuard::account(Watched& one) {
  const auto held = one.inspector_.held();
  held_ += held - one.held_;  // unsigned: a difference below zero counts down
  one.held_ = held;
  const bool is_full = held_ > rules_.unfinished_of_all + heard_ * ReadRules::kShare;
  return is_full && held > ReadRules::kShare ? "unfinished messages of all are too long together" : nullptr;
}

void ReadGuard::forget(const std::shared_ptr<Watched>& one) {
  held_ -= one->held_;
  one->held_ = 0;
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = by_port_.equal_range(port_of(one->peer_));
  const auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second == one; });
  if (found == end) return;
  by_port_.erase(found);
  one->is_forgotten_ = true;
  if (!one->rank_) return;
  const auto places = places_.find(one->rank_->attempt);
  if (one->is_heard_) {
    --heard_;
  } else {
    --places->second.on_trial;
  }
  const auto of_rank = places->second.of_rank.find(one->rank_->rank);
  if (--of_rank->second == 0) places->second.of_rank.erase(of_rank);
  if (places->second.of_rank.empty()) places_.erase(places);
}

void ReadGuard::tell(const Watched& one, const char* why) {
  static std::atomic<std::int64_t> told{-1000};
  const auto now = duration_cast<seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  auto before = told.load();
  if (now - before < kTellEvery.count() || !told.compare_exchange_strong(before, now)) return;
  const auto whose = one.rank_
                         ? "job " + std::to_string(one.rank_->attempt.job) + " attempt " +
                               std::to_string(one.rank_->attempt.number) + " rank " + std::to_string(one.rank_->rank)
                         : std::string("somebody with people's token");
  spdlog::warn("the connection of {} at {} was closed: {}; others like it are closed without a word for {} s", whose,
               one.peer_, why, kTellEvery.count());
}

}  // namespace rpc

/// gRPC's reads, see rpc::ReadGuard.
extern "C" ssize_t recvmsg(int socket, msghdr* message, int flags) {
  static const auto next = reinterpret_cast<ssize_t (*)(int, msghdr*, int)>(::dlsym(RTLD_NEXT, "recvmsg"));
  const auto got = next(socket, message, flags);
  if ((flags & (MSG_PEEK | MSG_ERRQUEUE)) != 0) return got;
  if (got > 0) return rpc::Sockets::all().allows(socket, *message, static_cast<std::size_t>(got)) ? got : 0;
  const bool comes_again = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  if (!comes_again) {
    const auto error = errno;
    rpc::Sockets::all().has_ended(socket);
    errno = error;
  }
  return got;
}
