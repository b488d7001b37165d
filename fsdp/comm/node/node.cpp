#include "fsdp/comm/node/node.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "fsdp/text/fnv1a.h"

namespace fsdp::node {
namespace {

void write_text(std::array<char, kTextBytes>& place, const std::string& text) {
  const std::size_t length = std::min(text.size(), kTextBytes - 1);
  std::copy_n(text.data(), length, place.data());
  place[length] = 0;
}

}  // namespace

std::string Call::text() const {
  return std::string(kind) + (whose.empty() ? "" : " of ") + std::string(whose);
}

std::uint64_t Call::digest() const {
  Fnv1a hash;
  hash.add(text());
  hash.add(static_cast<std::uint64_t>(bytes));
  hash.add(number);
  return hash.value();
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

void Node::post(const Call& call, Arena::Block* block, const void* data) {
  Post& post = board().post(call.number);
  post.digest = call.digest();
  post.data = block == nullptr ? SharedSpan() : Arena::span(*block, data);
  write_text(post.text, call.text() + " (" + std::to_string(call.bytes) + " bytes a rank)");
  if (block != nullptr) block->readers.push_back(call.number);
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

void Node::await_readers(Arena::Block& block) {
  const std::vector<std::uint64_t> readers = arena_.readers_of(block);
  for (const std::uint64_t number : readers) await_finished(number, "an earlier collective");
  block.readers.clear();
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

}  // namespace fsdp::node
