#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "fsdp/text/fnv1a.h"

namespace fsdp {

// [Note: tags] PeerSockets matches a send and a receive by peer and tag. The tag keeps concurrent collectives apart by
// the low bits of their number. Its other bits are a hash of kind, owner and size. So two ranks that run units in
// another order find no partner, and wait until the watcher or the timeout ends that. With the number alone they would
// exchange the bytes of different units.

/// Facts of a collective that both ends of an exchange must agree on.
struct Topic {
  const char* kind;
  std::string_view whose;
  std::int64_t bytes;    // of one rank's part
  std::uint32_t number;  // of the collective on this rank
  std::uint64_t tag = make_tag();

  /// The text of an error of the exchange with `peer`.
  std::string failure(int rank, int peer, const std::string& why) const {
    return std::string(kind) + (whose.empty() ? "" : " of " + std::string(whose)) + " on rank " + std::to_string(rank) +
           " with rank " + std::to_string(peer) +
           " failed (did it die, or does it call another unit at this point? this is call " + std::to_string(number) +
           ", " + std::to_string(bytes) + " bytes a rank): " + why;
  }

 private:
  static constexpr int kNumberBits = 10, kHashBits = 21;

  std::uint64_t make_tag() const {
    const std::uint64_t hash = Fnv1a().add(kind).add(whose).add(static_cast<std::uint64_t>(bytes)).value();
    const std::uint64_t folded = hash ^ hash >> 32;
    return (folded & ((1U << kHashBits) - 1)) << kNumberBits | (number & ((1U << kNumberBits) - 1));
  }
};

}  // namespace fsdp
