#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>

#include "muster/v1/rank_service.grpc.pb.h"
#include "rpc/call.h"
#include "rpc/pool.h"
#include "rpc/reading_probe.h"
#include "rpc/rendezvous_waiters.h"
#include "rpc/report_stream.h"
#include "service/controller.h"

namespace rpc {

/// What ranks and their tasks tell: thousands of them, a heartbeat a second each. Heartbeats come on streams
/// (ReportStream) and are noted by the thread that reads them. Calls hold no thread while they wait: the controller is
/// asked from a fixed number of threads. Its `rendezvous` must answer at once, the waiting is done here.
class RankService final : public muster::v1::RankService::CallbackService {
 public:
  RankService(service::Controller& controller, const Callers& callers);

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context, const muster::v1::RegisterRequest* request,
                                     muster::v1::RegisterResponse* response) override;
  grpc::ServerBidiReactor<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>* Beat(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context, const muster::v1::HeartbeatRequest* request,
                                      muster::v1::HeartbeatResponse* response) override;
  grpc::ServerUnaryReactor* Rendezvous(grpc::CallbackServerContext* context,
                                       const muster::v1::RendezvousRequest* request,
                                       muster::v1::RendezvousResponse* response) override;
  grpc::ServerBidiReactor<muster::v1::TaskRequest, muster::v1::TaskResponse>* FollowTask(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Task(grpc::CallbackServerContext* context, const muster::v1::TaskRequest* request,
                                 muster::v1::TaskResponse* response) override;

  /// Ranks that wait are told "not yet", now and later.
  void stop_waiting() { waiters_.close(); }
  /// Ranks and tasks are told to come back.
  void stop_streams() {
    beats_.stop();
    tasks_.stop();
  }
  /// From now on this one's stream is told from those of ranks. Call it before the server takes calls.
  void set_probe(ReadingProbe* probe) { probe_ = probe; }

 private:
  struct Meeting;
  grpc::ServerUnaryReactor* run(grpc::CallbackServerContext* context, const muster::v1::RankKey& key,
                                std::function<grpc::Status()> body);
  void ask(const std::shared_ptr<Meeting>& meeting);
  void ask_later(const std::shared_ptr<Meeting>& meeting);

  service::Controller& controller_;
  const Callers& callers_;
  Pool pool_;
  Pool meetings_;  // so that heartbeats never queue behind ranks that meet
  BeatStreams beats_;
  TaskStreams tasks_;
  std::atomic<ReadingProbe*> probe_ = nullptr;
  RendezvousWaiters waiters_;  // first to go: its last answers need nothing, those before may need the pools
};

}  // namespace rpc
