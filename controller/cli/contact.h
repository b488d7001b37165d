#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "cli/client.h"
#include "cli/interrupts.h"

namespace cli {

/// How reading a stream ended.
enum class StreamEnd { kComplete, kTimedOut, kInterrupted };

/// Reads streams to their end. If the connection is lost, it says so once on stderr, and opens the stream again until
/// that works, the deadline passes, or Ctrl-C is pressed.
class Contact {
 public:
  using Clock = std::chrono::system_clock;

  /// Without a `deadline` it tries for ever.
  explicit Contact(Client& client, std::optional<Clock::time_point> deadline = std::nullopt);

  template <typename Message>
  using Open = std::function<std::unique_ptr<grpc::ClientReader<Message>>(grpc::ClientContext*)>;

  /// Calls `open` for each try; it must ask only for what was not read yet. After `longest` the stream is opened again,
  /// so that a connection that died silently is noticed. Leave `longest` out if opening again is costly.
  template <typename Message>
  StreamEnd follow(const Open<Message>& open, const std::function<void(const Message&)>& take,
                   std::optional<std::chrono::seconds> longest = std::nullopt) {
    while (true) {
      if (const auto end = once<Message>(open, take, longest)) return *end;
    }
  }

  /// As follow() if `follows`; else reads the stream once, and throws if the connection is lost.
  template <typename Message>
  static StreamEnd read(Client& client, bool follows, const Open<Message>& open,
                        const std::function<void(const Message&)>& take) {
    if (follows) return Contact(client).follow<Message>(open, take);
    grpc::ClientContext context;
    client.authorize(context);
    auto reader = open(&context);
    Message message;
    while (reader->Read(&message)) take(message);
    if (const auto status = reader->Finish(); !status.ok()) throw client.failure(status);
    return StreamEnd::kComplete;
  }

  /// Waits a moment before the next try. Returns false if it was interrupted or the deadline has passed.
  bool pause();
  /// Handles a failed try. Returns true to try again. Throws errors other than a lost connection.
  bool settle(const grpc::Status& status);
  /// Notes that the connection works again.
  void regained();
  /// Why settle() or pause() returned false.
  StreamEnd stopped() const;

 private:
  /// One try. nullopt: the stream is to be opened again.
  template <typename Message>
  std::optional<StreamEnd> once(const Open<Message>& open, const std::function<void(const Message&)>& take,
                                std::optional<std::chrono::seconds> longest) {
    grpc::ClientContext context;
    client_.authorize(context);
    std::optional<Clock::time_point> until = deadline_;
    if (longest) until = std::min(until.value_or(Clock::time_point::max()), Clock::now() + *longest);
    if (until) context.set_deadline(*until);
    const Interrupts::Scope scope(context);
    auto reader = open(&context);
    Message message;
    while (reader->Read(&message)) {
      regained();
      take(message);
    }
    const auto status = reader->Finish();
    if (status.ok()) return StreamEnd::kComplete;
    if (Interrupts::instance().requested() || out_of_time()) return stopped();
    if (longest && status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) return std::nullopt;
    return settle(status) ? std::nullopt : std::optional(stopped());
  }
  bool out_of_time() const { return deadline_ && Clock::now() >= *deadline_; }

  Client& client_;
  std::optional<Clock::time_point> deadline_;
  std::chrono::milliseconds wait_;
  bool lost_ = false;
};

}  // namespace cli
