#include "fsdp/comm/node/node.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "fsdp/text/fnv1a.h"
#include "fsdp/tracing/error_text.h"

namespace fsdp::node {
namespace {

void write_text(std::array<char, kTextBytes>& place, const std::string& text) {
  const std::size_t length = std::min(text.size(), kTextBytes - 1);
  std::copy_n(text.data(), length, place.data());
  place[length] = 0;
}

/// The ranks of a group at their store.
class Meeting {
 public:
  Meeting(c10::intrusive_ptr<c10d::Store> store, const TransportOptions& options)
      : store_(std::move(store)), options_(options) {}

  void write(const std::string& key, const std::string& value) { store_->set(key, value); }

  std::string read(const std::string& key) {
    try {
      store_->wait({key}, options_.timeout);
      return store_->get_to_str(key);
    } catch (const std::exception& error) {
      TORCH_CHECK(false, "shared memory on rank ", options_.rank, " of ", options_.world_size, ": no \"", key,
                  "\" in the rendezvous store (did a rank die?): ", text_of(error));
    }
  }

  /// True if all ranks say yes. The last one writes the answer, so a rank reads one key and not one a rank.
  bool all_agree(const std::string& question, bool yes) {
    store_->add("noes to " + question, yes ? 0 : 1);
    if (store_->add("answers to " + question, 1) == options_.world_size)
      write(question, store_->add("noes to " + question, 0) == 0 ? "yes" : "no");
    return read(question) == "yes";
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  const TransportOptions& options_;
};

std::string card_of(int rank) {
  return "card of rank " + std::to_string(rank);
}

}  // namespace

std::string Card::text() const {
  return host + " " + std::to_string(pid) + " " + std::to_string(fd) + " " + std::to_string(key);
}

Card Card::parse(const std::string& text) {
  std::istringstream in(text);
  Card card;
  TORCH_CHECK(in >> card.host >> card.pid >> card.fd >> card.key, "not a rank's card: ", text);
  return card;
}

std::string this_host() {
  std::string boot;
  TORCH_CHECK(std::ifstream("/proc/sys/kernel/random/boot_id") >> boot, "no boot id in /proc");
  std::array<char, 64> space{};
  TORCH_CHECK(::readlink("/proc/self/ns/pid", space.data(), space.size() - 1) > 0,
              "/proc/self/ns/pid: ", std::strerror(errno));
  return boot + "/" + space.data() + "/" + std::to_string(::geteuid());
}

Peer::Peer(const Card& card)
    : pid_(card.pid),
      process_(static_cast<int>(::syscall(SYS_pidfd_open, card.pid, 0))),
      file_(SharedFile::open(card.pid, card.fd)),
      board_pages_(file_.map(0, whole_pages(sizeof(Board)), /*writable=*/false)),
      board_(reinterpret_cast<const Board*>(board_pages_.start())) {
  TORCH_CHECK(process_.get() >= 0, "pidfd_open of process ", pid_, ": not possible");
  TORCH_CHECK(board_->key == card.key, "process ", pid_, " is another one than the rank");
}

bool Peer::is_dead() const {
  pollfd process{process_.get(), POLLIN, 0};
  return ::poll(&process, 1, 0) == 1;
}

const char* Peer::data(const SharedSpan& span) {
  auto known = blocks_.find(span.block);
  if (known == blocks_.end())
    known = blocks_.emplace(span.block, file_.map(span.block, span.block_bytes, /*writable=*/false)).first;
  return known->second.start() + span.offset;
}

std::string Call::text() const {
  return std::string(kind) + (whose.empty() ? "" : " of ") + std::string(whose);
}

std::uint64_t Call::digest() const {
  return Fnv1a().add(text()).add(static_cast<std::uint64_t>(bytes)).add(number).value();
}

Node::Node(int rank, int world_size, std::chrono::milliseconds timeout)
    : rank_(rank),
      world_size_(world_size),
      timeout_(timeout),
      file_(SharedFile::create()),
      board_pages_(file_.map(0, whole_pages(sizeof(Board)), /*writable=*/true)),
      arena_(file_, whole_pages(sizeof(Board)), [this](std::uint64_t number) { return all_finished(number); }) {
  std::random_device random;
  board().key = std::uint64_t{random()} << 32 | random();
}

Node::~Node() {
  leave("its mesh was destroyed");
}

Card Node::card() const {
  return {this_host(), ::getpid(), file_.descriptor(), reinterpret_cast<const Board*>(board_pages_.start())->key};
}

void Node::meet(const std::vector<Card>& cards) {
  peers_.resize(cards.size());
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_) continue;
    try {
      peers_[peer] = std::make_unique<Peer>(cards[peer]);
    } catch (const c10::Error& error) {
      TORCH_CHECK(false, "rank ", peer, ": ", error.what_without_backtrace());
    }
  }
}

Call Node::next(const char* kind, std::string_view whose, std::int64_t bytes) {
  const Call call{kind, whose, bytes, number_};
  if (failed_peer_ >= 0) fail(call, failed_peer_, failure_);
  // The post that this one replaces must have served.
  if (number_ >= kPosts) await_finished(number_ - kPosts, call.text());
  ++number_;
  return call;
}

void Node::post(const Call& call, Arena::Block* block, const void* data, std::int64_t bytes) {
  Post& post = board().post(call.number);
  post.digest = call.digest();
  post.data = block == nullptr ? SharedSpan() : Arena::span(*block, data);
  write_text(post.text, call.text() + " (" + std::to_string(call.bytes) + " bytes a rank)");
  if (block != nullptr) {
    const std::int64_t begin = post.data.offset;
    block->readers.push_back({call.number, begin, begin + bytes});
  }
  post.posted.store(call.number + 1, std::memory_order_release);
  board().ring();
}

const char* Node::data_of(int peer, const Call& call) {
  if (failed_peer_ >= 0) fail(call, failed_peer_, failure_);
  const Board& theirs = peers_[peer]->board();
  const auto outcome = peers_[peer]->await([&] { return theirs.has_posted(call.number); },
                                           std::chrono::steady_clock::now() + timeout_, interruption_);
  if (outcome != Peer::Outcome::kReady) fail(call, peer, why(peer, outcome));
  const Post& post = theirs.post(call.number);
  if (post.digest != call.digest())
    fail(call, peer, "rank " + std::to_string(peer) + " calls " + post.text.data() + " here");
  return post.data.block == 0 ? nullptr : peers_[peer]->data(post.data);
}

void Node::finish(const Call& call) {
  board().post(call.number).finished.store(call.number + 1, std::memory_order_release);
  board().ring();
}

bool Node::all_finished(std::uint64_t number) const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [&](const auto& peer) { return peer == nullptr || peer->board().has_finished(number); });
}

void Node::await_finished(std::uint64_t number, const std::string& what) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_) continue;
    const Board& theirs = peers_[peer]->board();
    const auto outcome = peers_[peer]->await([&] { return theirs.has_finished(number); }, deadline, interruption_);
    if (outcome == Peer::Outcome::kLate || outcome == Peer::Outcome::kInterrupted)
      fail({"the reuse of memory", what, 0, number}, peer, why(peer, outcome));
  }
}

void Node::await_readers(Arena::Block& block, const void* data, std::int64_t bytes) {
  const std::int64_t begin = Arena::span(block, data).offset, end = begin + bytes;
  const auto readers = arena_.readers_of(block);
  for (const Arena::Block::Reader& reader : readers)
    if (reader.begin < end && begin < reader.end) await_finished(reader.number, "an earlier collective");
}

std::string Node::why(int peer, Peer::Outcome outcome) const {
  const std::string rank = "rank " + std::to_string(peer);
  switch (outcome) {
    case Peer::Outcome::kDied:
      return rank + "'s process " + std::to_string(peers_[peer]->pid()) + " has ended";
    case Peer::Outcome::kLeft:
      return rank + " has left: " + peers_[peer]->board().why_left.data();
    case Peer::Outcome::kLate:
      return rank + " did not come within " + std::to_string(timeout_.count()) + " ms";
    case Peer::Outcome::kInterrupted:
      return interruption_.reason();
    case Peer::Outcome::kReady:
      break;
  }
  return {};
}

void Node::fail(const Call& call, int peer, const std::string& reason) {
  if (failed_peer_ < 0) {
    failed_peer_ = peer;
    failure_ = reason;
    leave(reason);
  }
  TORCH_CHECK(false, call.text(), " on rank ", rank_, " with rank ", peer,
              " failed (did it die, or does it call another unit at this point? this is call ", call.number, ", ",
              call.bytes, " bytes a rank): ", reason);
}

void Node::leave(const std::string& reason) {
  if (board().left.load(std::memory_order_relaxed) != 0) return;
  write_text(board().why_left, reason);
  board().left.store(1, std::memory_order_release);
  board().ring();
}

std::unique_ptr<Node> meet(const c10::intrusive_ptr<c10d::Store>& store, const TransportOptions& options) {
  Meeting meeting(store, options);
  std::unique_ptr<Node> node;
  std::string host = "none";
  try {
    node = std::make_unique<Node>(options.rank, options.world_size, options.timeout);
    const Card card = node->card();
    host = card.host;
    meeting.write(card_of(options.rank), card.text());
  } catch (const c10::Error&) {
    node = nullptr;  // this system does not allow it
  }
  if (options.rank == 0) meeting.write("host of rank 0", host);
  const bool is_here = node != nullptr && meeting.read("host of rank 0") == host;
  if (!meeting.all_agree("all on one host", is_here)) return nullptr;

  std::vector<Card> cards;
  for (int rank = 0; rank < options.world_size; ++rank) cards.push_back(Card::parse(meeting.read(card_of(rank))));
  bool reached = true;
  try {
    node->meet(cards);
  } catch (const c10::Error&) {
    reached = false;  // such as a container that hides processes
  }
  return meeting.all_agree("all reached", reached) ? std::move(node) : nullptr;
}

}  // namespace fsdp::node
