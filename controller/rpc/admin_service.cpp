#include "rpc/call.h"
#include "rpc/job_service.h"

namespace rpc {

grpc::Status AdminService::Status(grpc::ServerContext* context, const muster::v1::StatusRequest*,
                                  muster::v1::StatusResponse* response) {
  return callers_.for_people(*context, [&] {
    *response = controller_.status();
    return grpc::Status::OK;
  });
}

grpc::Status AdminService::ListPartitions(grpc::ServerContext* context,
                                          const muster::v1::ListPartitionsRequest* request,
                                          muster::v1::ListPartitionsResponse* response) {
  return callers_.for_people(*context, [&] { return answer(controller_.list_partitions(*request), response); });
}

grpc::Status AdminService::SetPartition(grpc::ServerContext* context, const muster::v1::SetPartitionRequest* request,
                                        muster::v1::PartitionView* response) {
  return callers_.for_people(*context, [&] { return answer(controller_.set_partition(*request), response); });
}

grpc::Status AdminService::RemovePartition(grpc::ServerContext* context,
                                           const muster::v1::RemovePartitionRequest* request,
                                           muster::v1::RemovePartitionResponse* response) {
  return callers_.for_people(*context, [&] { return answer(controller_.remove_partition(*request), response); });
}

grpc::Status AdminService::ListNodes(grpc::ServerContext* context, const muster::v1::ListNodesRequest*,
                                     muster::v1::ListNodesResponse* response) {
  return callers_.for_people(*context, [&] { return answer(controller_.list_nodes(), response); });
}

grpc::Status AdminService::ListAudit(grpc::ServerContext* context, const muster::v1::ListAuditRequest* request,
                                     muster::v1::ListAuditResponse* response) {
  return callers_.for_people(*context, [&] {
    *response = controller_.list_audit(*request);
    return grpc::Status::OK;
  });
}

}  // namespace rpc
