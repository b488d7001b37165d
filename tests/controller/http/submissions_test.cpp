// Goal: a program submits and changes jobs over HTTP; a refusal has findings, and a repeated request changes nothing.
#include <tuple>

#include "tests/controller/http/fixture.h"

class Submissions : public HttpTest {
 protected:
  Client::Answer post(const std::string& target, const nlohmann::json& body) {
    return ask("POST", target, {"X-Muster: 1"}, body.is_null() ? "" : body.dump());
  }
  const nlohmann::json job_ = {{"folder", "/data"}, {"job", {{"name", "one"}, {"command", {"true"}}}}};
};

TEST_F(Submissions, AJobIsStoredOnceForItsRequestId) {
  auto body = job_;
  body["user"] = "ben";
  body["request_id"] = "r1";
  body["submitted_env"] = {{"PATH", "/bin"}};
  body["set"] = {{"env.LR", "1e-4"}};
  const auto answer = post("/api/v1/jobs", body);
  ASSERT_EQ(answer.status, 201) << answer.body;
  EXPECT_EQ(answer.json(), nlohmann::json::parse(R"({"job_id": 3, "already_submitted": false})"));
  EXPECT_EQ(answer.headers.at("location"), "/api/v1/jobs/3");
  EXPECT_EQ(post("/api/v1/jobs", body).json(), nlohmann::json::parse(R"({"job_id": 3, "already_submitted": true})"));
  const auto stored = controller_.submissions();
  ASSERT_EQ(stored.size(), 1u);
  EXPECT_EQ(stored[0].user(), "ben");
  const auto& spec = stored[0].specs(0);
  EXPECT_EQ(spec.working_folder(), "/data");
  EXPECT_EQ(spec.env().at("LR"), "1e-4");
  EXPECT_EQ(spec.submitted_env().at("PATH"), "/bin");
  EXPECT_EQ(get("/api/v1/jobs/3").json()["user"], "ben");
}

TEST_F(Submissions, ABadJobIs400WithFindingsAndNothingIsStored) {
  auto body = job_;
  body["job"]["resources"] = {{"nodes", 0}};
  const auto answer = post("/api/v1/jobs", body);
  EXPECT_EQ(answer.status, 400);
  ASSERT_EQ(answer.json()["findings"].size(), 1u) << answer.body;
  const auto finding = answer.json()["findings"][0];
  EXPECT_EQ(finding["place"], "job");
  EXPECT_EQ(finding["key"], "resources.nodes");
  EXPECT_EQ(finding["value"], "0");
  EXPECT_EQ(answer.error(), "job: resources.nodes \"0\": " + finding["message"].get<std::string>());
  EXPECT_NE(answer.json()["remedy"], "");
  EXPECT_EQ(post("/api/v1/sweeps", job_).json()["findings"][0]["message"], "the sweep varies no key");
  for (const char* text : {"{", "[]", "\"x\"", "{\"job\": \"\xff\"}"})
    EXPECT_EQ(ask("POST", "/api/v1/jobs", {"X-Muster: 1"}, text).status, 400) << text;
  EXPECT_TRUE(controller_.submissions().empty());
}

TEST_F(Submissions, WhatTheControllerRefusesIsToldWithItsStatus) {
  controller_.refuse_submissions(common::Refusal::invalid("after \"9\": there is no job 9; look at muster list"));
  const auto invalid = post("/api/v1/jobs", job_);
  EXPECT_EQ(invalid.status, 400);
  EXPECT_EQ(invalid.error(), "after \"9\": there is no job 9; look at muster list");
  EXPECT_EQ(invalid.json()["findings"][0]["remedy"], "look at muster list");
  controller_.refuse_submissions(common::Refusal::limit("too many jobs"));
  EXPECT_EQ(post("/api/v1/jobs", job_).status, 429);
  controller_.refuse_submissions(common::Refusal::unavailable("the disk is full"));
  EXPECT_EQ(post("/api/v1/jobs", job_).status, 503);
}

TEST_F(Submissions, NobodySubmitsWithoutTokenOrHeader) {
  EXPECT_EQ(Client(server_->port()).ask("POST", "/api/v1/jobs", {"X-Muster: 1"}, job_.dump()).status, 401);
  EXPECT_EQ(ask("POST", "/api/v1/jobs", {}, job_.dump()).status, 403);
  EXPECT_TRUE(controller_.submissions().empty());
}

TEST_F(Submissions, OnlyThoseWithATokenMaySendALargeBody) {
  auto body = job_;
  body["job"]["env"]["LONG"] = std::string(100'000, 'x');
  EXPECT_EQ(post("/api/v1/jobs", body).status, 201);
  const auto text = body.dump();
  Client stranger(server_->port());
  stranger.send("POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nX-Muster: 1\r\nContent-Length: " +
                std::to_string(text.size()) + "\r\n\r\n");
  EXPECT_EQ(stranger.receive().status, 401);
  Client chunks(server_->port());
  chunks.send(
      "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nX-Muster: 1\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n" +
      std::string(0x20000, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunks.receive().status, 401);
  EXPECT_EQ(post("/api/v1/jobs/1/cancel", {{"user", std::string(100'000, 'x')}}).status, 413);
  Client large(server_->port());
  large.send("POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n" + bearer_ +
             "\r\nX-Muster: 1\r\nContent-Length: " + std::to_string(http::kMaxSubmissionBytes + 1) + "\r\n\r\n");
  EXPECT_EQ(large.receive().status, 413);
}

// A client that writes its whole body first must not see a broken connection in place of the refusal.
TEST_F(Submissions, ARefusalReachesAClientThatIsStillSending) {
  const std::string body(3 << 20, 'x');
  for (const auto& [target, authorization, status] : std::vector<std::tuple<std::string, std::string, int>>{
           {"/api/v1/jobs", "Authorization: Bearer guess", 401}, {"/api/v1/jobs/1/hold", bearer_, 413}}) {
    Client client(server_->port());
    EXPECT_TRUE(client.send("POST " + target + " HTTP/1.1\r\nHost: localhost\r\nX-Muster: 1\r\n" + authorization +
                            "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n"));
    EXPECT_EQ(controller_.last_event_id(), 0);
    for (std::size_t at = 0; at < body.size(); at += 65536) ASSERT_TRUE(client.send(body.substr(at, 65536))) << target;
    EXPECT_EQ(client.receive().status, status);
    EXPECT_TRUE(client.is_closed_by_peer());
  }
}

TEST_F(Submissions, ASweepIsSubmittedAndChangedAsAWhole) {
  auto body = job_;
  body["sweep"] = {{"env.SEED", "0..2"}};
  body["parallel"] = 2;
  body["request_id"] = "s";
  body["submitted_env"] = {{"PATH", "/bin"}};
  const auto answer = post("/api/v1/sweeps", body);
  ASSERT_EQ(answer.status, 201) << answer.body;
  EXPECT_EQ(answer.json(),
            nlohmann::json::parse(R"({"sweep": "s3", "job_ids": [3, 4, 5], "already_submitted": false})"));
  EXPECT_EQ(answer.headers.at("location"), "/api/v1/jobs?sweep=s3");
  const auto stored = controller_.submissions().at(0);
  EXPECT_EQ(stored.parallel(), 2u);
  EXPECT_EQ(stored.submitted_env().at("PATH"), "/bin");
  EXPECT_EQ(stored.specs(2).env().at("SEED"), "2");
  EXPECT_EQ(get("/api/v1/jobs?sweep=s3").json()["total"], 3);
  EXPECT_EQ(post("/api/v1/sweeps/s3/hold", {{"user", "ann"}}).json()["jobs"][0]["held_by"], "ann");
  EXPECT_EQ(post("/api/v1/sweeps/s3/release", {}).json()["jobs"][0]["held_by"], "");
  EXPECT_EQ(post("/api/v1/sweeps/s3/requeue", {}).json()["jobs"].size(), 3u);
  EXPECT_EQ(post("/api/v1/sweeps/s3/cancel", {}).json()["jobs"][2]["state"], "stopping");
  EXPECT_EQ(post("/api/v1/sweeps/s9/cancel", {}).status, 404);
  EXPECT_EQ(get("/api/v1/sweeps/s3/cancel").headers.at("allow"), "POST");
}

TEST_F(Submissions, AChangeNamesItsUserAndRefusesOtherMembers) {
  EXPECT_EQ(post("/api/v1/jobs/1/hold", {{"user", "ben"}}).json()["held_by"], "ben");
  EXPECT_EQ(post("/api/v1/jobs/1/hold", {{"user", 7}}).status, 400);
  EXPECT_EQ(post("/api/v1/jobs/1/hold", {{"usr", "ben"}}).status, 400);
  EXPECT_EQ(ask("POST", "/api/v1/jobs/1/hold", {"X-Muster: 1"}, "[]").status, 400);
}

TEST_F(Submissions, ATimeLimitIsSetAndAnEndedJobIsRemoved) {
  EXPECT_EQ(post("/api/v1/jobs/1/limit", {{"time_limit_ms", 60000}}).json()["time_limit_ms"], 60000);
  for (const auto& wrong :
       {nlohmann::json::object(), {{"time_limit_ms", "1h"}}, {{"time_limit_ms", -1}}, {{"time_limit_ms", 1.5}}})
    EXPECT_EQ(post("/api/v1/jobs/1/limit", wrong).status, 400) << wrong;
  EXPECT_EQ(post("/api/v1/jobs/1/remove", {}).status, 409);
  EXPECT_EQ(post("/api/v1/jobs/9/remove", {}).status, 404);
  EXPECT_EQ(post("/api/v1/jobs/2/remove", {{"dry_run", 1}}).status, 400);
  EXPECT_EQ(post("/api/v1/jobs/2/remove", {{"dry_run", true}}).json()["name"], "job-2");
  EXPECT_EQ(get("/api/v1/jobs/2").status, 200);
  EXPECT_EQ(post("/api/v1/jobs/2/remove", {}).json()["job_id"], 2);
  EXPECT_EQ(get("/api/v1/jobs/2").status, 404);
}
