#pragma once

#include <grpcpp/grpcpp.h>

#include "muster/v1/admin_service.grpc.pb.h"
#include "muster/v1/job_service.grpc.pb.h"
#include "rpc/call.h"
#include "rpc/follow.h"

namespace rpc {

/// The calls of people. They are synchronous, since people make few calls and the number of streams is limited. See
/// job_service.proto.
class JobService final : public muster::v1::JobService::Service {
 public:
  JobService(service::Controller& controller, const Callers& callers, Streams& streams)
      : controller_(controller), callers_(callers), streams_(streams) {}

  grpc::Status Submit(grpc::ServerContext* context, const muster::v1::SubmitRequest* request,
                      muster::v1::SubmitResponse* response) override;
  grpc::Status List(grpc::ServerContext* context, const muster::v1::ListRequest* request,
                    muster::v1::ListResponse* response) override;
  grpc::Status Get(grpc::ServerContext* context, const muster::v1::GetRequest* request,
                   muster::v1::Job* response) override;
  grpc::Status GetSpec(grpc::ServerContext* context, const muster::v1::GetRequest* request,
                       muster::v1::JobSpec* response) override;
  grpc::Status Cancel(grpc::ServerContext* context, const muster::v1::CancelRequest* request,
                      muster::v1::Job* response) override;
  grpc::Status Requeue(grpc::ServerContext* context, const muster::v1::RequeueRequest* request,
                       muster::v1::Job* response) override;
  grpc::Status Hold(grpc::ServerContext* context, const muster::v1::HoldRequest* request,
                    muster::v1::Job* response) override;
  grpc::Status Release(grpc::ServerContext* context, const muster::v1::HoldRequest* request,
                       muster::v1::Job* response) override;
  grpc::Status SetTimeLimit(grpc::ServerContext* context, const muster::v1::SetTimeLimitRequest* request,
                            muster::v1::Job* response) override;
  grpc::Status SubmitSweep(grpc::ServerContext* context, const muster::v1::SubmitSweepRequest* request,
                           muster::v1::SubmitSweepResponse* response) override;
  grpc::Status ChangeSweep(grpc::ServerContext* context, const muster::v1::ChangeSweepRequest* request,
                           muster::v1::ChangeSweepResponse* response) override;
  grpc::Status Remove(grpc::ServerContext* context, const muster::v1::RemoveRequest* request,
                      muster::v1::RemoveResponse* response) override;
  grpc::Status Why(grpc::ServerContext* context, const muster::v1::GetRequest* request,
                   muster::v1::WhyResponse* response) override;
  grpc::Status PlanScript(grpc::ServerContext* context, const muster::v1::PlanScriptRequest* request,
                          muster::v1::PlanScriptResponse* response) override;
  grpc::Status CheckScript(grpc::ServerContext* context, const muster::v1::PlanScriptRequest* request,
                           muster::v1::CheckScriptResponse* response) override;
  grpc::Status Watch(grpc::ServerContext* context, const muster::v1::GetRequest* request,
                     grpc::ServerWriter<muster::v1::Job>* writer) override;
  grpc::Status Events(grpc::ServerContext* context, const muster::v1::EventsRequest* request,
                      grpc::ServerWriter<muster::v1::Event>* writer) override;
  grpc::Status Metrics(grpc::ServerContext* context, const muster::v1::MetricsRequest* request,
                       grpc::ServerWriter<muster::v1::Metric>* writer) override;
  grpc::Status Logs(grpc::ServerContext* context, const muster::v1::LogsRequest* request,
                    grpc::ServerWriter<muster::v1::LogChunk>* writer) override;

 private:
  /// Checks the token and the length of the user's name.
  grpc::Status as_user(grpc::ServerContext* context, const std::string& user,
                       const std::function<grpc::Status()>& body);
  /// Checks the token and runs `body` as one of the streams.
  grpc::Status stream(grpc::ServerContext* context, core::JobId job, const std::function<grpc::Status(Follow&)>& body);

  service::Controller& controller_;
  const Callers& callers_;
  Streams& streams_;
};

class AdminService final : public muster::v1::AdminService::Service {
 public:
  AdminService(service::Controller& controller, const Callers& callers) : controller_(controller), callers_(callers) {}

  grpc::Status Status(grpc::ServerContext* context, const muster::v1::StatusRequest* request,
                      muster::v1::StatusResponse* response) override;
  grpc::Status ListPartitions(grpc::ServerContext* context, const muster::v1::ListPartitionsRequest* request,
                              muster::v1::ListPartitionsResponse* response) override;
  grpc::Status SetPartition(grpc::ServerContext* context, const muster::v1::SetPartitionRequest* request,
                            muster::v1::PartitionView* response) override;
  grpc::Status RemovePartition(grpc::ServerContext* context, const muster::v1::RemovePartitionRequest* request,
                               muster::v1::RemovePartitionResponse* response) override;
  grpc::Status ListNodes(grpc::ServerContext* context, const muster::v1::ListNodesRequest* request,
                         muster::v1::ListNodesResponse* response) override;
  grpc::Status ListAudit(grpc::ServerContext* context, const muster::v1::ListAuditRequest* request,
                         muster::v1::ListAuditResponse* response) override;

 private:
  service::Controller& controller_;
  const Callers& callers_;
};

}  // namespace rpc
