// bare_stream FOLDER WORLD JOBS INTERVAL_MS: a gRPC server that reads the heartbeats of so many jobs and does nothing
// with them, beside which the cost of musterd's is measured. It answers a heartbeat that asks for an answer. Its output
// and its input are those of heartbeat_server, and FOLDER is not used.
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>

#include "base/fd.h"
#include "bench/own_cpu.h"
#include "muster/v1/rank_service.grpc.pb.h"

namespace {

using muster::v1::BeatResponse;
using muster::v1::HeartbeatRequest;

class Stream final : public grpc::ServerBidiReactor<HeartbeatRequest, BeatResponse> {
 public:
  explicit Stream(std::uint32_t interval_ms) {
    answer_.set_heartbeat_interval_ms(interval_ms);
    StartRead(&request_);
  }

  // The server is ended by its process, so no answer is under way when a stream ends.
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (request_.answer_soon()) return StartWrite(&answer_);
    StartRead(&request_);
  }
  void OnWriteDone(bool ok) override { ok ? StartRead(&request_) : Finish(grpc::Status::OK); }
  void OnDone() override { delete this; }

 private:
  HeartbeatRequest request_;
  BeatResponse answer_;
};

class Service final : public muster::v1::RankService::CallbackService {
 public:
  explicit Service(std::uint32_t interval_ms) : interval_ms_(interval_ms) {}
  grpc::ServerBidiReactor<HeartbeatRequest, BeatResponse>* Beat(grpc::CallbackServerContext*) override {
    return new Stream(interval_ms_);
  }

 private:
  const std::uint32_t interval_ms_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: bare_stream FOLDER WORLD JOBS INTERVAL_MS\n";
    return 2;
  }
  try {
    base::raise_open_files_limit();
    const int jobs = std::stoi(argv[3]);
    Service service(static_cast<std::uint32_t>(std::stoul(argv[4])));
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    const auto server = builder.BuildAndStart();
    if (server == nullptr || port == 0) throw std::runtime_error("gRPC could not listen on 127.0.0.1");
    std::cout << "{\"port\": " << port << ", \"tokens\": {";
    for (int job = 1; job <= jobs; ++job) std::cout << (job > 1 ? ", " : "") << '"' << job << "\": \"none\"";
    std::cout << "}}" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << "{\"cpu_s\": " << cpu_seconds() << ", \"silent\": 0, \"running\": " << jobs
                << ", \"lag_ms\": 0, \"floor_ms\": 0}" << std::endl;
    }
    std::cout.flush();
    std::_Exit(0);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
