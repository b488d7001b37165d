#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/program/controller_link.h"
#include "agent/rank/grpc/grpc_client.h"
#include "agent/rank/meeting.h"

namespace agent::program {

/// The link by gRPC. It tells the controller news at once, and at the controller's interval the newest request of each
/// rank. It does so on one stream, which is opened anew when it breaks. Thread-safe; one thread of its own, and the
/// stream's.
class GrpcLink : public ControllerLink {
 public:
  GrpcLink(const rank::Endpoint& controller, const std::string& token, muster::v1::TaskRequest first,
           OnDirective on_directive);
  ~GrpcLink() override;
  GrpcLink(const GrpcLink&) = delete;
  GrpcLink& operator=(const GrpcLink&) = delete;

  void tell(const muster::v1::TaskRequest& request) override;
  void tell_later(const muster::v1::TaskRequest& request) override;
  void hold(std::uint32_t rank) override;
  bool flush(std::chrono::milliseconds patience) override;
  std::chrono::milliseconds unheard_for() const override;
  std::string meet(const std::string& mine, rank::MeetingPatience patience) override;
  bool give_stack(std::uint64_t number, std::uint32_t rank, const std::string& text) override;

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  /// One rank, and what the controller is told of it.
  struct Told {
    muster::v1::TaskRequest request;
    bool is_news = true;
    bool is_held = false;
  };

  void put(const muster::v1::TaskRequest& request);
  void run();
  /// The requests that are to be sent now: all, or the news alone.
  std::vector<muster::v1::TaskRequest> to_send(bool all);
  /// Sends them, with the lock released meanwhile. False: the controller can't be told now.
  bool send(Lock& lock);
  /// False: the system has no room for one.
  bool open_stream();
  void close_stream(Lock& lock);
  bool stream_is_broken() const;
  void say_unreached(Lock& lock);
  /// Notes that an answer is asked for.
  void ask(std::uint64_t number);
  void answered(const muster::v1::TaskResponse& answer);

  const rank::Endpoint controller_;
  rank::GrpcClient client_;
  const OnDirective on_directive_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, heard_;
  const muster::v1::RankKey key_;                               // of the agent's first rank
  std::vector<Told> told_;                                      // the rank with the newest news last
  std::uint64_t version_ = 1, heard_version_ = 0;               // of told_
  std::uint64_t asked_version_ = 0, asked_number_ = 0;          // of the newest request that asked for an answer
  std::optional<Clock::time_point> owes_since_ = Clock::now();  // the controller an answer
  Clock::time_point answered_at_ = Clock::now();                // on this stream; or the stream was opened then
  bool is_answered_ = false;                                    // this stream
  bool was_answered_ = false;                                   // some stream or call
  std::chrono::milliseconds interval_{500};
  bool closed_ = false;

  // Fields of the thread that hears.
  std::pair<muster::v1::Directive, std::int64_t> said_{muster::v1::DIRECTIVE_CONTINUE, 0};  // with the grace in ms
  std::uint64_t stacks_ = 0;
  // Fields of the thread that tells.
  rank::Backoff backoff_;
  Clock::time_point all_sent_at_{};
  const Clock::time_point began_at_ = Clock::now();
  bool said_unreached_ = false;
  std::string error_;  // with which the newest stream ended
  std::unique_ptr<rank::TaskStream> stream_;
  std::thread thread_;
};

/// A ConnectToController.
std::unique_ptr<ControllerLink> link_by_grpc(const rank::Endpoint& controller, const std::string& token,
                                             const muster::v1::TaskRequest& first, OnDirective on_directive);

}  // namespace agent::program
