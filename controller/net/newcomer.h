#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controller/net/http2.h"

namespace net {

/// The words that one connection has said before it was judged, within a budget. A parser without clock and I/O, for
/// the language of one port. Bytes come in as the socket gave them, in pieces of any size. They are kept, since the
/// server gets them once the connection is handed over. Not thread-safe.
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

/// Facts that the first call of a connection tells of its caller.
struct FirstCall {
  std::uint32_t stream = 0;
  std::string path;     // "/muster.v1.JobService/List"
  std::string token;    // of "authorization: Bearer <token>"; empty: none
  std::string user;     // of "muster-user"; empty: none
  std::string message;  // the first bytes of its message, at most kMessageBytes; empty: they were not asked for
};

/// The words that one connection to the gRPC port has said before its first call was judged: HTTP/2 with a budget.
///
/// Frames are parsed as far as a call needs: its headers, and the beginning of its message where the path begins with
/// `message_of`. Not thread-safe.
class Newcomer final : public FirstWords {
 public:
  /// The budget. A gRPC client needs some 600 bytes and five frames up to its first call.
  static constexpr std::size_t kMostBytes = 24 * 1024;
  static constexpr std::size_t kMostHeaderBytes = 8 * 1024;
  static constexpr int kMostFrames = 64;
  static constexpr std::size_t kMostCalls = 4;
  static constexpr std::size_t kMessageBytes = 64;

  /// Reads the beginning of the message, too, of calls whose path begins with `message_of`. Empty: of none.
  explicit Newcomer(std::string_view message_of = "") : message_of_(message_of) {}

  State take(std::string_view bytes) override;
  State state() const { return state_; }
  std::size_t room() const override { return kMostBytes - said_.size(); }
  const std::string& said() const override { return said_; }
  /// The call that is complete, once the state is kCalls.
  const FirstCall& call() const { return call_; }
  /// The fault of the connection, once the state is kMisbehaves.
  const std::string& fault() const { return fault_; }

 private:
  struct Frame {
    std::size_t size = 0;  // of the payload
    std::uint8_t kind = 0, flags = 0;
    std::uint32_t stream = 0;
    std::string_view payload;  // as much of it as is there
    bool is_whole() const { return payload.size() == size; }
  };
  /// A call whose message is not there yet.
  struct Open {
    FirstCall call;
    std::string message;  // with gRPC's prefix of five bytes
  };

  void parse();
  bool next(Frame& frame) const;
  void judge(const Frame& frame);
  void take_headers(const Frame& frame);
  void take_fragment(const Frame& frame, std::string_view fragment);
  void end_headers(std::uint32_t stream);
  void take_data(const Frame& frame);
  void calls(FirstCall call) {
    call_ = std::move(call);
    state_ = State::kCalls;
  }
  void misbehaves(std::string why) {
    fault_ = std::move(why);
    state_ = State::kMisbehaves;
  }
  bool is_done() const { return state_ == State::kCalls || state_ == State::kMisbehaves; }

  const std::string message_of_;
  State state_ = State::kSilent;
  std::string said_;
  std::size_t at_ = 0;  // what of it was parsed
  int frames_ = 0;
  HpackReader hpack_;
  std::uint32_t last_stream_ = 0, headers_of_ = 0;  // headers_of_: its block goes on in the next frame; 0: none does
  bool headers_end_stream_ = false;
  std::string block_;
  std::vector<Open> open_;
  FirstCall call_;
  std::string fault_;
};

}  // namespace net
