#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace net {

/// What one connection has said before it was judged, within a budget. A parser without clock and I/O, for the language
/// of one port. Bytes come in as the socket gave them, in pieces of any size. They are kept, since the server gets them
/// once the connection is handed over. Not thread-safe.
///
/// States: kSilent -> kWaits -> kCalls or kMisbehaves. The last two are final.
class FirstWords {
 public:
  enum class State { kSilent, kWaits, kCalls, kMisbehaves };

  virtual ~FirstWords() = default;
  /// Takes what was read; at most room() bytes.
  virtual State take(std::string_view bytes) = 0;
  /// How many bytes may still be taken.
  virtual std::size_t room() const = 0;
  /// Everything that was taken.
  virtual const std::string& said() const = 0;
};

}  // namespace net
