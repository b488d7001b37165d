# Reporting to the controller. Included where the controller side is built too.
muster_library(worker_rank_grpc
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/grpc_reporter.cpp" "${CMAKE_CURRENT_LIST_DIR}/grpc_client.cpp"
          "${CMAKE_CURRENT_LIST_DIR}/grpc_outbox.cpp"
  DEPENDS muster_proto worker_rank)
