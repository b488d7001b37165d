#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "cli/client.h"
#include "cli/interrupts.h"

namespace cli {

/// How a followed stream ended.
enum class StreamEnd { kComplete, kTimedOut, kInterrupted };

/// Reads streams to their end, over lost connections: it says so once on stderr, and opens the stream again until it
/// works, the deadline passes or Ctrl-C comes.
class Contact {
 public:
  using Clock = std::chrono::system_clock;

  /// `deadline` absent: for ever.
  explicit Contact(Client& client, std::optional<Clock::time_point> deadline = std::nullopt);

  template <typename Message>
  using Open = std::function<std::unique_ptr<grpc::ClientReader<Message>>(grpc::ClientContext*)>;

  /// `open` is called for each try and asks for what has not been seen yet. A stream is opened anew at the latest after
  /// `longest`, so that a connection that died silently is noticed; leave it out where opening again is costly.
  template <typename Message>
  StreamEnd follow(const Open<Message>& open, const std::function<void(const Message&)>& take,
                   std::optional<std::chrono::seconds> longest = std::nullopt) {
    while (true) {
      const auto [status, end] = once<Message>(open, take, longest);
      if (end) return *end;
      if (!settle(status)) return stopped();
    }
  }

  /// One stream without any of this: what is there now. Throws when contact is lost.
  template <typename Message>
  static void read(Client& client, const Open<Message>& open, const std::function<void(const Message&)>& take) {
    grpc::ClientContext context;
    client.authorize(context);
    auto reader = open(&context);
    Message message;
    while (reader->Read(&message)) take(message);
    if (const auto status = reader->Finish(); !status.ok()) throw client.failure(status);
  }

  /// Waits a moment before the next try; false: interrupted or out of time.
  bool pause();
  /// After a failed try. True: try again. Throws what is no loss of contact.
  bool settle(const grpc::Status& status);
  /// Contact is back, if it was lost.
  void regained();
  /// Why settle() or pause() gave up.
  StreamEnd stopped() const;

 private:
  struct Try {
    grpc::Status status;
    std::optional<StreamEnd> end;
  };

  template <typename Message>
  Try once(const Open<Message>& open, const std::function<void(const Message&)>& take,
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
    if (status.ok()) return {status, StreamEnd::kComplete};
    if (Interrupts::instance().requested()) return {status, StreamEnd::kInterrupted};
    if (out_of_time()) return {status, StreamEnd::kTimedOut};
    if (longest && status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) return {grpc::Status::OK, std::nullopt};
    return {status, std::nullopt};
  }
  bool out_of_time() const { return deadline_ && Clock::now() >= *deadline_; }

  Client& client_;
  std::optional<Clock::time_point> deadline_;
  std::chrono::milliseconds wait_;
  bool lost_ = false;
};

}  // namespace cli
