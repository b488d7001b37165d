#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "muster/v1/rank_service.grpc.pb.h"
#include "rpc/call.h"
#include "rpc/pool.h"
#include "rpc/rendezvous_desk.h"
#include "service/controller.h"

namespace rpc {

/// What ranks tell: hundreds of them, twice a second each, so their calls hold no thread while they wait. The
/// controller is asked from a fixed number of threads; its `rendezvous` must answer at once, the waiting is done here.
class RankService final : public muster::v1::RankService::CallbackService {
 public:
  RankService(runtime::Controller& controller, const Callers& callers);

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context, const muster::v1::RegisterRequest* request,
                                     muster::v1::RegisterResponse* response) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context, const muster::v1::HeartbeatRequest* request,
                                      muster::v1::HeartbeatResponse* response) override;
  grpc::ServerUnaryReactor* Rendezvous(grpc::CallbackServerContext* context,
                                       const muster::v1::RendezvousRequest* request,
                                       muster::v1::RendezvousResponse* response) override;
  grpc::ServerUnaryReactor* Task(grpc::CallbackServerContext* context, const muster::v1::TaskRequest* request,
                                 muster::v1::TaskResponse* response) override;

  /// Ranks that wait are told "not yet", now and later.
  void stop_waiting() { desk_.close(); }

 private:
  struct Meeting;
  grpc::ServerUnaryReactor* run(grpc::CallbackServerContext* context, const muster::v1::RankKey& key,
                                std::function<grpc::Status()> body);
  void ask(const std::shared_ptr<Meeting>& meeting);
  void ask_later(const std::shared_ptr<Meeting>& meeting);

  runtime::Controller& controller_;
  const Callers& callers_;
  Pool pool_;
  Pool meetings_;        // so that heartbeats never queue behind ranks that meet
  RendezvousDesk desk_;  // first to go: its last answers need nothing, those before may need the pools
};

}  // namespace rpc
