#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/comm/node/arena.h"
#include "fsdp/comm/node/board.h"
#include "fsdp/comm/node/peer.h"
#include "fsdp/comm/node/shared_file.h"

namespace fsdp::node {

/// A collective of a rank. Ranks match their collectives by number and compare the rest.
struct Call {
  const char* kind = "";
  std::string_view whose;
  std::int64_t bytes = 0;  // of one rank's part
  std::uint64_t number = 0;

  std::string text() const;
  std::uint64_t digest() const;
};

/// This rank among the ranks of a group that share memory: its board and blocks, and those of its peers.
///
/// A collective begins with next() and post(), which do not wait for peers. Later this rank reads its peers' bytes with
/// data_of(), and calls finish(). A peer's bytes stay until every rank has called finish().
///
/// The first failure is final: the rank tells its peers why it leaves, and each later collective fails with the first
/// reason.
///
/// Not thread-safe, except interrupt().
class Node {
 public:
  /// Makes this rank's file. Throws c10::Error with the reason where the system does not allow it.
  Node(int rank, int world_size, std::chrono::milliseconds timeout);
  /// Tells the peers that this rank has left.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Card card() const;
  /// Opens the peers' files. `cards` are by rank. Throws c10::Error naming the rank that cannot be reached.
  void meet(const std::vector<Card>& cards);

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  Arena& arena() { return arena_; }

  /// A call with the next number. Throws when the group has failed.
  Call next(const char* kind, std::string_view whose, std::int64_t bytes);
  /// Shows `data`, of `block`, to the peers. Null: the call carries nothing of this rank.
  void post(const Call& call, Arena::Block* block = nullptr, const void* data = nullptr);
  /// Waits for a peer's bytes of this call. Throws c10::Error naming call and peer when the peer died, left, is late,
  /// or makes another call at this point.
  const char* data_of(int peer, const Call& call);
  /// This rank reads nothing more for the call.
  void finish(const Call& call);

  /// Waits until all peers have finished the calls that they may read `block` for. A peer that died or left reads
  /// nothing. Throws c10::Error naming the peer after the timeout.
  void await_readers(Arena::Block& block);

  /// Takes part in no further collective. The peers get to read `reason`.
  void leave(const std::string& reason);

  /// Ends each wait for a peer, now and later, with this error. May be called from any thread.
  void interrupt(const std::string& reason) { interruption_.set(reason); }

 private:
  Board& board() { return *reinterpret_cast<Board*>(board_pages_.start()); }
  bool all_finished(std::uint64_t number) const;
  void await_finished(std::uint64_t number, const std::string& what);
  [[noreturn]] void fail(const Call& call, int peer, const std::string& reason);
  std::string why(int peer, Peer::Outcome outcome) const;

  int rank_;
  int world_size_;
  std::chrono::milliseconds timeout_;
  SharedFile file_;
  Mapping board_pages_;
  Arena arena_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank, null for this one
  std::uint64_t number_ = 0;
  int failed_peer_ = -1;
  std::string failure_;
  Interruption interruption_;
};

}  // namespace fsdp::node
