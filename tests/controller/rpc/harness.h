#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "controller/rpc/rpc_server.h"
#include "muster/v1/admin_service.grpc.pb.h"
#include "muster/v1/job_service.grpc.pb.h"
#include "muster/v1/rank_service.grpc.pb.h"
#include "tests/controller/rpc/fake_controller.h"

namespace rpc::testing {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;  // NOLINT: a test's own header

/// A client's call with a token. Its deadline ends a test that hangs.
struct Call : grpc::ClientContext {
  explicit Call(const std::string& token = FakeController::kPeopleToken) {
    if (!token.empty()) AddMetadata("authorization", "Bearer " + token);
    set_deadline(std::chrono::system_clock::now() + 20s);
  }
};

inline std::shared_ptr<grpc::Channel> connect(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(), arguments);
}

/// A real server on a free port with a fake controller behind it.
class Rpc : public ::testing::Test {
 protected:
  FakeController controller_;
  std::unique_ptr<Server> server_ = serve(controller_, "127.0.0.1:0");
  std::shared_ptr<grpc::Channel> channel_ = connect(server_->port());
  std::unique_ptr<muster::v1::JobService::Stub> jobs_ = muster::v1::JobService::NewStub(channel_);
  std::unique_ptr<muster::v1::AdminService::Stub> admin_ = muster::v1::AdminService::NewStub(channel_);
  /// A connection is a person's or a rank's.
  std::unique_ptr<muster::v1::RankService::Stub> ranks_ = muster::v1::RankService::NewStub(connect(server_->port()));

  /// Waits until `count` streams are open.
  bool streams_become(std::size_t count) const {
    const auto until = Clock::now() + 10s;
    while (server_->open_streams() != count && Clock::now() < until) std::this_thread::sleep_for(5ms);
    return server_->open_streams() == count;
  }
  /// How a stream ends that has sent one request.
  template <typename Request, typename Response>
  static grpc::StatusCode end_after(grpc::ClientReaderWriter<Request, Response>& stream, const Request& request) {
    stream.Write(request);
    Response answer;
    while (stream.Read(&answer)) stream.WritesDone();
    return stream.Finish().error_code();
  }
  /// An open stream is told at once that the server leaves.
  template <typename Request, typename Response>
  void expect_end_with_the_server(grpc::ClientReaderWriter<Request, Response>& stream, const Request& first) {
    Response answer;
    ASSERT_TRUE(stream.Write(first));
    ASSERT_TRUE(stream.Read(&answer));
    const auto begin = Clock::now();
    std::thread shutdown([this] { server_->shutdown(); });
    EXPECT_FALSE(stream.Read(&answer));
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
    shutdown.join();
    EXPECT_LT(Clock::now() - begin, 1s) << "an open stream does not use up the grace";
  }
  static muster::v1::GetRequest job_request(core::JobId id) {
    muster::v1::GetRequest request;
    request.set_job_id(id);
    return request;
  }
};

}  // namespace rpc::testing
