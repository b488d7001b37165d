// The dashboard's server with a scripted controller, for browser tests.
//
// Usage: http_test_server LOG_FOLDER
// Prints {"port", "token"}. Then reads one JSON command a line, and answers each with {"ok": true} or {"error"}:
//   {"do": "job", "job": {...}}                          adds or replaces a job
//   {"do": "event", "job_id", "type", "text"}            adds an event
//   {"do": "metrics", "job_id", "metrics": [{...}]}      adds steps
//   {"do": "log", "job_id", "attempt", "rank", "text"}   appends to a log
//   {"do": "down"}, {"do": "up"}                         stops the server; starts it again on the same port
// It ends at the end of its input.
#include <iostream>
#include <nlohmann/json.hpp>

#include "controller/http/http_server.h"
#include "proto/json/proto_json.h"
#include "tests/claimed_port.h"
#include "tests/controller/http/scripted_controller.h"

namespace {

using nlohmann::ordered_json;

class TestServer {
 public:
  explicit TestServer(const char* logs) : controller_(logs), server_(http::serve(controller_, address_)) {}

  int port() const { return server_->port(); }

  void run(const ordered_json& command) {
    const auto what = command.at("do").get<std::string>();
    if (what == "job") {
      muster::v1::Job job;
      proto::from_json(command.at("job"), job);
      controller_.put(job);
    } else if (what == "event") {
      controller_.add_event(command.at("job_id"), command.at("type"), command.at("text"));
    } else if (what == "metrics") {
      for (const auto& json : command.at("metrics")) {
        muster::v1::Metric metric;
        proto::from_json(json, metric);
        controller_.add_metric(command.at("job_id"), metric);
      }
    } else if (what == "stacks") {
      muster::v1::StacksView view;
      proto::from_json(command.at("view"), view);
      controller_.put_stacks(view);
    } else if (what == "log") {
      controller_.append_log(command.at("job_id"), command.at("attempt"), command.at("rank"), command.at("text"));
    } else if (what == "down") {
      server_.reset();
    } else if (what == "up") {
      server_ = http::serve(controller_, address_);
    } else {
      throw std::invalid_argument("unknown command " + what);
    }
  }

 private:
  ScriptedController controller_;
  test::ClaimedPort port_;
  std::string address_ = port_.on("127.0.0.1");
  std::unique_ptr<http::Server> server_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: http_test_server LOG_FOLDER\n";
    return 2;
  }
  TestServer server(argv[1]);
  std::cout << ordered_json{{"port", server.port()}, {"token", ScriptedController::kToken}} << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      server.run(ordered_json::parse(line));
      std::cout << ordered_json{{"ok", true}} << std::endl;
    } catch (const std::exception& error) {
      std::cout << ordered_json{{"error", error.what()}} << std::endl;
    }
  }
}
