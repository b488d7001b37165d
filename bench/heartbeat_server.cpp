// heartbeat_server FOLDER WORLD JOBS INTERVAL_MS: musterd's store, controller and gRPC server, with attempts that have
// no processes, so that a world of any size runs on one machine. Prints a line of JSON: the port, and for each job its
// attempt's token. Then each line on its input is answered with a line of JSON: CPU seconds of this process, ranks that
// were called silent, how late heartbeats are read, the interval's floor. It ends with its input.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <iostream>
#include <string>
#include <thread>

#include "base/fd.h"
#include "bench/own_cpu.h"
#include "controller/common/tokens.h"
#include "controller/rpc/rpc_server.h"
#include "controller/service/controller_impl.h"
#include "controller/store/sqlite_store.h"

namespace {

/// Ranks of which nobody but their own heartbeats tells.
class NoProcesses final : public executors::Executor, public executors::AttemptLauncher {
 public:
  std::string name() const override { return "local"; }
  void start(executors::FactSink) override {}
  executors::AttemptLauncher& launcher(const executors::LaunchRequest&) override { return *this; }
  executors::LaunchAnswer launch(const executors::LaunchRequest& request) override {
    core::AttemptLaunched launched{request.key.number, "bench", "node", {}};
    launched.pids.assign(std::size_t{request.nodes} * request.ranks_per_node, 1);
    return launched;
  }
  void adopt(const core::AttemptKey&, const core::Attempt&) override {}
  void stop(const core::AttemptKey&, const executors::StopRequest&) override {}
  executors::Vouch vouch(const core::AttemptKey&, core::RankNumber) override { return executors::Vouch::kUnknown; }
  void shutdown() override {}
};

core::JobId submit(service::Controller& controller, const std::string& folder, std::uint32_t world, int interval_ms) {
  muster::v1::SubmitRequest request;
  auto& spec = *request.mutable_spec();
  spec.set_name("bench");
  spec.set_working_folder(folder);
  spec.mutable_resources()->set_ranks_per_node(world);
  spec.mutable_recipe()->set_kind("causal_lm");
  (*spec.mutable_recipe()->mutable_values())["data.source"].set_text("fixture");
  spec.mutable_liveness()->set_heartbeat_interval_ms(interval_ms);
  request.set_user("bench");
  const auto answer = controller.submit(request);
  if (!answer.ok()) throw std::runtime_error(answer.refusal().text);
  const auto id = answer.value().job_id();
  for (int i = 0; i < 600 && controller.get(id).value().state() != "running"; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return id;
}

void answer(service::Controller& controller) {
  const auto totals = controller.totals(0, 10'000'000);
  const auto found = totals.events.find("rank_silent");
  const auto status = controller.status();
  std::cout << "{\"cpu_s\": " << cpu_seconds() << ", \"silent\": " << (found == totals.events.end() ? 0 : found->second)
            << ", \"running\": " << status.jobs_running() << ", \"lag_ms\": " << status.heartbeat_lag_ms()
            << ", \"floor_ms\": " << status.heartbeat_floor_ms() << ", \"streams\": " << status.rank_streams() << "}"
            << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: heartbeat_server FOLDER WORLD JOBS INTERVAL_MS\n";
    return 2;
  }
  try {
    spdlog::set_default_logger(spdlog::stderr_logger_mt("heartbeat_server"));
    const std::string folder = argv[1];
    base::raise_open_files_limit();
    const auto store = store::open_sqlite_store(folder + "/muster.db");
    common::RealClock clock;
    NoProcesses executor;
    const auto controller =
        service::make_controller(*store, executor, clock, {.data_folder = folder, .people_token = "bench"});
    const auto server = rpc::serve(*controller, "127.0.0.1:0");
    controller->start({"127.0.0.1:" + std::to_string(server->port()), ""});
    std::string tokens;
    for (int job = 0; job < std::stoi(argv[3]); ++job) {
      const auto id = submit(*controller, folder, static_cast<std::uint32_t>(std::stoul(argv[2])), std::stoi(argv[4]));
      tokens += (tokens.empty() ? "" : ", ") + std::string("\"") + std::to_string(id) + "\": \"" +
                common::rank_token(store->secret(), id, 1) + "\"";
    }
    std::cout << "{\"port\": " << server->port() << ", \"tokens\": {" << tokens << "}}" << std::endl;
    for (std::string line; std::getline(std::cin, line);) answer(*controller);
    server->shutdown();
    controller->stop();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
