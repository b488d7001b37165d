#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "controller/http/http_server.h"
#include "tests/controller/http/client.h"
#include "tests/controller/http/scripted_controller.h"
#include "tests/temporary_folder.h"

/// A server on a free port. Its scripted controller has a running job (1) and a failed job (2).
class HttpTest : public testing::Test {
 protected:
  HttpTest() : controller_(folder_.path()) {
    controller_.put(job(1, "running"));
    controller_.put(job(2, "failed"));
    start();
  }
  ~HttpTest() override {
    controller_.let_go();
    server_.reset();
  }

  void start(const std::string& address = "127.0.0.1:0") { server_ = http::serve(controller_, address); }

  static muster::v1::Job job(std::int64_t id, const std::string& state) {
    muster::v1::Job out;
    out.set_id(id);
    out.set_name("job-" + std::to_string(id));
    out.set_state(state);
    out.set_submitted_at("2026-03-01T09:00:00.000Z");
    auto& attempt = *out.add_attempts();
    attempt.set_number(1);
    attempt.set_state(state == "running" ? "running" : "ended");
    attempt.set_cause(state == "running" ? "" : "failed");
    out.set_steps_total(100);
    return out;
  }

  static muster::v1::Metric metric(std::uint32_t attempt, std::int64_t step, double loss) {
    muster::v1::Metric out;
    out.set_attempt(attempt);
    out.set_step(step);
    out.set_loss(loss);
    return out;
  }

  const std::string bearer_ = std::string("Authorization: Bearer ") + ScriptedController::kToken;

  Client::Answer ask(const std::string& method, const std::string& target, std::vector<std::string> headers = {},
                     const std::string& body = "") {
    headers.push_back(bearer_);
    return Client(server_->port()).ask(method, target, headers, body);
  }
  Client::Answer get(const std::string& target) { return ask("GET", target); }

  std::unique_ptr<Client> open_stream(const std::string& more_headers = "", const std::string& query = "") {
    auto client = std::make_unique<Client>(server_->port());
    client->send("GET /api/v1/stream" + query + " HTTP/1.1\r\nHost: localhost\r\n" + bearer_ + "\r\n" + more_headers +
                 "\r\n");
    return client;
  }

  const test::TemporaryFolder folder_;
  ScriptedController controller_;
  std::unique_ptr<http::Server> server_;
};
