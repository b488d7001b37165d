// Goal: the API answers each request with the documented JSON, or refuses it with a remedy.
#include <limits>

#include "tests/controller/http/fixture.h"

using Api = HttpTest;

TEST_F(Api, JobsAreListedAsTheCommandLineShowsThem) {
  const auto list = get("/api/v1/jobs").json();
  ASSERT_EQ(list["jobs"].size(), 2u);
  EXPECT_EQ(list["total"], 2);
  EXPECT_EQ(list["jobs"][0]["id"], 2);
  EXPECT_EQ(list["jobs"][1]["state"], "running");
  EXPECT_EQ(list["jobs"][1]["steps_total"], 100);
  EXPECT_TRUE(list["jobs"][1]["loss"].is_null());
}

TEST_F(Api, WhatAJobWaitsForIsShown) {
  muster::v1::Job job;
  job.set_id(5);
  job.set_state("queued");
  job.set_held_by("ben");
  job.add_waits_for("succeeded:3");
  job.set_scheduler_problem("scheduler unreachable since noon: squeue took longer than 5 s");
  job.mutable_sweep()->set_sweep("s4");
  job.mutable_sweep()->set_index(1);
  (*job.mutable_sweep()->mutable_settings())["train.seed"] = "7";
  auto& attempt = *job.add_attempts();
  attempt.set_number(1);
  attempt.set_queued_at("2026-03-01T10:00:00.000Z");
  attempt.set_scheduler_job("1234_5");
  controller_.put(job);
  const auto shown = get("/api/v1/jobs/5").json();
  EXPECT_EQ(shown["held_by"], "ben");
  EXPECT_EQ(shown["waits_for"], nlohmann::json::array({"succeeded:3"}));
  EXPECT_EQ(shown["scheduler_problem"], job.scheduler_problem());
  EXPECT_EQ(shown["sweep"]["sweep"], "s4");
  EXPECT_EQ(shown["sweep"]["settings"]["train.seed"], "7");
  EXPECT_EQ(shown["attempts"][0]["queued_at"], "2026-03-01T10:00:00.000Z");
  EXPECT_EQ(shown["attempts"][0]["scheduler_job"], "1234_5");
  const auto queued = get("/api/v1/jobs?state=queued").json();
  EXPECT_EQ(queued["total"], 1);
  EXPECT_EQ(queued["jobs"][0]["id"], 5);
  EXPECT_NE(get("/metrics").body.find("muster_jobs{state=\"queued\"} 1\n"), std::string::npos);
}

TEST_F(Api, JobsCanBeFilteredLimitedAndPaged) {
  EXPECT_EQ(get("/api/v1/jobs?state=running").json()["jobs"][0]["id"], 1);
  EXPECT_EQ(get("/api/v1/jobs?state=running,failed").json()["total"], 2);
  EXPECT_EQ(get("/api/v1/jobs?limit=1").json()["jobs"].size(), 1u);
  EXPECT_EQ(get("/api/v1/jobs?before=2").json()["jobs"][0]["id"], 1);
  EXPECT_EQ(get("/api/v1/jobs?id=2,7,1").json()["jobs"].size(), 2u);
  EXPECT_EQ(get("/api/v1/jobs?id=2").json()["jobs"][0]["id"], 2);
}

TEST_F(Api, ABadParameterIs400AndSaysWhichAndWhatIsWanted) {
  for (const char* target :
       {"/api/v1/jobs?state=walking", "/api/v1/jobs?limit=501", "/api/v1/jobs?limit=-1", "/api/v1/jobs?before=1x",
        "/api/v1/jobs?id=1,x", "/api/v1/jobs?id=0", "/api/v1/jobs/1/metrics?attempt=99999999999",
        "/api/v1/jobs/1/logs?tail=10001", "/api/v1/jobs/1/logs?offset=%20"}) {
    const auto answer = get(target);
    EXPECT_EQ(answer.status, 400) << target;
    EXPECT_NE(answer.error(), "") << target;
  }
  EXPECT_NE(get("/api/v1/jobs?limit=501").error().find("limit=501"), std::string::npos);
  EXPECT_EQ(get("/api/v1/jobs?limt=5").json()["remedy"], "did you mean limit?");
  EXPECT_EQ(get("/api/v1/jobs?owner=me").json()["remedy"], "use id, state, sweep, limit, before");
  EXPECT_EQ(get("/api/v1/jobs?id=1&id=2").error(), "the parameter id is there twice");
}

TEST_F(Api, WhatIsNotThereIs404AndAWrongMethodIs405WithAllow) {
  for (const char* target : {"/api/v1/jobs/9", "/api/v1/jobs/0", "/api/v1/jobs/x", "/api/v1/jobs/99999999999999999999",
                             "/api/v1/jobs/9/metrics", "/api/v1/jobs/1/secrets", "/api/v1/x", "/x", "/../etc/passwd"})
    EXPECT_EQ(get(target).status, 404) << target;
  const auto answer = ask("GET", "/api/v1/jobs/1/cancel");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.headers.at("allow"), "POST");
  EXPECT_EQ(ask("PUT", "/api/v1/jobs", {"X-Muster: 1"}).headers.at("allow"), "GET, POST");
  EXPECT_EQ(ask("DELETE", "/", {"X-Muster: 1"}).status, 405);
}

TEST_F(Api, MetricsGoOnAfterAnAttemptAndStep) {
  for (int step = 0; step < 4; ++step) controller_.add_metric(1, metric(1, step, 5.0 - step));
  controller_.add_metric(1, metric(2, 2, 3.5));
  EXPECT_EQ(get("/api/v1/jobs/1/metrics").json()["metrics"].size(), 5u);
  const auto rest = get("/api/v1/jobs/1/metrics?after_attempt=1&after_step=2").json();
  ASSERT_EQ(rest["metrics"].size(), 2u);
  EXPECT_EQ(rest["metrics"][0]["step"], 3);
  EXPECT_EQ(rest["metrics"][1]["attempt"], 2);
  EXPECT_EQ(rest["more"], false);
  EXPECT_EQ(get("/api/v1/jobs/1/metrics?attempt=2").json()["metrics"].size(), 1u);
  EXPECT_EQ(get("/api/v1/jobs/1/metrics?limit=2").json()["more"], true);
}

TEST_F(Api, CurvesComeInAsManyPointsAsAreAskedForAndAZoomGetsEachStep) {
  for (int step = 1; step <= 400; ++step) {
    auto one = metric(1, step, 5.0);
    (*one.mutable_series())["loss"] = step == 77 ? 9 : step == 78 ? std::numeric_limits<double>::quiet_NaN() : 5;
    one.set_step_ms(20);
    one.set_at_ms(1000 + step);
    controller_.add_metric(1, one);
  }
  const auto curves = get("/api/v1/jobs/1/metrics?points=16").json();
  EXPECT_EQ(curves["attempts"],
            nlohmann::json::parse(R"([{"attempt":1,"first_step":1,"last_step":400,"rows_from_step":0}])"));
  EXPECT_EQ(curves["bucket_steps"], 128);
  ASSERT_EQ(curves["series"].size(), 1u);
  const auto& loss = curves["series"][0];
  EXPECT_EQ(loss["name"], "loss");
  EXPECT_EQ(loss["values"], 400);
  EXPECT_EQ(loss["steps"], 400);
  EXPECT_EQ(loss["step"], nlohmann::json::parse("[1,77,78,127,128,255,256,383,384,400]"));
  EXPECT_EQ(loss["attempt"].size(), 10u);
  EXPECT_EQ(loss["last"], nlohmann::json::parse("[0,0,0,1,0,1,0,1,0,1]"));
  EXPECT_EQ(loss["at_ms"][1], 1077);
  EXPECT_EQ(loss["value"][1], 9);
  EXPECT_TRUE(loss["value"][2].is_null()) << "no number";
  ASSERT_EQ(curves["measures"].size(), 1u);
  EXPECT_EQ(curves["measures"][0]["name"], "step_ms");
  const auto zoomed = get("/api/v1/jobs/1/metrics?points=16&from_step=76&to_step=79").json();
  EXPECT_EQ(zoomed["bucket_steps"], 1);
  EXPECT_EQ(zoomed["series"][0]["step"], nlohmann::json::parse("[76,77,78,79]"));
  const auto rest = get("/api/v1/jobs/1/metrics?points=16&after_attempt=1&after_step=398").json();
  EXPECT_EQ(rest["series"][0]["step"], nlohmann::json::parse("[399,400]"));
  const auto logarithmic = get("/api/v1/jobs/1/metrics?points=100&spacing=log").json();
  EXPECT_EQ(logarithmic["series"][0]["step"][3], 4);
  for (const char* wrong : {"points=5001", "points=x", "points=9&from_step=-1", "points=9&spacing=wide"})
    EXPECT_EQ(get(std::string("/api/v1/jobs/1/metrics?") + wrong).status, 400) << wrong;
  EXPECT_EQ(get("/api/v1/jobs/9/metrics?points=5").status, 404);
}

TEST_F(Api, EventsOfAJobComeOldestFirstAndCanBePaged) {
  const auto first = controller_.add_event(1, "rank_joined", "rank 0 joined");
  controller_.add_event(2, "rank_exited", "rank 0 exited with 1");
  controller_.add_event(1, "rank_joined", "rank 1 joined");
  const auto events = get("/api/v1/jobs/1/events").json()["events"];
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["text"], "rank 0 joined");
  EXPECT_EQ(get("/api/v1/jobs/1/events?after_id=" + std::to_string(first)).json()["events"][0]["text"],
            "rank 1 joined");
}

TEST_F(Api, CancelAndRequeueReachTheControllerAndTheirRefusalsAre409) {
  const auto cancelled = ask("POST", "/api/v1/jobs/1/cancel", {"X-Muster: 1"});
  EXPECT_EQ(cancelled.status, 200);
  EXPECT_EQ(cancelled.json()["state"], "stopping");
  EXPECT_EQ(ask("POST", "/api/v1/jobs/2/requeue", {"X-Muster: 1"}).json()["state"], "waiting");
  controller_.put(job(3, "succeeded"));
  const auto refused = ask("POST", "/api/v1/jobs/3/cancel", {"X-Muster: 1"});
  EXPECT_EQ(refused.status, 409);
  EXPECT_NE(refused.error().find("has ended already"), std::string::npos);
  EXPECT_EQ(ask("POST", "/api/v1/jobs/9/cancel", {"X-Muster: 1"}).status, 404);
}

TEST_F(Api, AJobIsHeldAndReleasedAndSaysWhyItWaits) {
  EXPECT_EQ(ask("GET", "/api/v1/jobs/1/hold").status, 405);
  EXPECT_EQ(ask("POST", "/api/v1/jobs/1/hold", {"X-Muster: 1"}).json()["held_by"], "dashboard");
  EXPECT_EQ(ask("POST", "/api/v1/jobs/1/release", {"X-Muster: 1"}).json()["held_by"], "");
  const auto why = ask("GET", "/api/v1/jobs/1/why");
  EXPECT_EQ(why.status, 200);
  EXPECT_EQ(why.json()["status"], "running");
  EXPECT_EQ(ask("GET", "/api/v1/jobs/9/why").status, 404);
}

TEST_F(Api, LogsGiveTheTailAndGoOnAtTheOffset) {
  controller_.append_log(1, 1, 0, "one\ntwo\nthree\n");
  const auto tail = get("/api/v1/jobs/1/logs?rank=0&tail=2").json();
  EXPECT_EQ(tail["text"], "two\nthree\n");
  EXPECT_EQ(tail["attempt"], 1);
  const auto offset = std::to_string(tail["next_offset"].get<int>());
  EXPECT_EQ(get("/api/v1/jobs/1/logs?rank=0&offset=" + offset).json()["text"], "");
  controller_.append_log(1, 1, 0, "four\n");
  const auto next = get("/api/v1/jobs/1/logs?rank=0&offset=" + offset).json();
  EXPECT_EQ(next["text"], "four\n");
  EXPECT_EQ(next["next_offset"], 19);
}

// A progress bar is one line that does not end for hours.
TEST_F(Api, LogsAreSentAsFarAsTheyGoAndNoCharacterIsBroken) {
  controller_.append_log(1, 1, 0, "whole\n\r 10%|\xe2\x96");
  const auto begun = get("/api/v1/jobs/1/logs").json();
  EXPECT_EQ(begun["text"], "whole\n\r 10%|");
  controller_.append_log(1, 1, 0, "\x88\r 20%|");
  const auto rest = get("/api/v1/jobs/1/logs?offset=" + std::to_string(begun["next_offset"].get<int>())).json();
  EXPECT_EQ(rest["text"], "\u2588\r 20%|");
  controller_.append_log(2, 1, 0, "whole\nhalf");
  EXPECT_EQ(get("/api/v1/jobs/2/logs").json()["text"], "whole\nhalf");
}

TEST_F(Api, RanksComeInPagesWithTheirHeartbeatsAgesByTheControllersClock) {
  auto job = controller_.get(1).value();
  job.clear_ranks();
  for (std::uint32_t number = 0; number < 300; ++number) {
    auto& rank = *job.add_ranks();
    rank.set_rank(number);
    rank.set_state(number == 7 ? "silent" : "running");
    if (number != 1) rank.set_last_heartbeat_ms(120);
    if (number == 299) rank.set_slowness(1.5);
  }
  job.set_ranks_total(302);
  controller_.put(job);
  const auto first = get("/api/v1/jobs/1/ranks?limit=2").json();
  EXPECT_EQ(first["attempt"], 1);
  EXPECT_EQ(first["total"], 302);
  EXPECT_EQ(first["states"], nlohmann::json::parse(R"({"missing":2,"running":299,"silent":1})"));
  EXPECT_EQ(first["slow"], 1);
  ASSERT_EQ(first["ranks"].size(), 2u);
  EXPECT_EQ(first["ranks"][0]["last_heartbeat_ms"], 120);
  EXPECT_TRUE(first["ranks"][1]["last_heartbeat_ms"].is_null());
  const auto last = get("/api/v1/jobs/1/ranks?from=299&limit=500").json()["ranks"];
  ASSERT_EQ(last.size(), 3u);
  EXPECT_EQ(last[0]["slowness"], 1.5);
  EXPECT_EQ(last[2]["rank"], 301);
  EXPECT_EQ(last[2]["state"], "missing");
  const auto silent = get("/api/v1/jobs/1/ranks?show=silent").json();
  EXPECT_EQ(silent["total"], 1);
  EXPECT_EQ(silent["ranks"][0]["rank"], 7);
  EXPECT_EQ(get("/api/v1/jobs/1/ranks?show=slow").json()["ranks"][0]["rank"], 299);
  EXPECT_EQ(get("/api/v1/jobs/1/ranks?limit=501").status, 400);
  EXPECT_EQ(ask("POST", "/api/v1/jobs/1/ranks", {"X-Muster: 1"}).status, 405);
  EXPECT_EQ(get("/api/v1/jobs/1").json()["ranks"].size(), 300u);
  EXPECT_TRUE(get("/api/v1/jobs/1?ranks=0").json()["ranks"].empty());
}

TEST_F(Api, ALogThatDoesNotExistYetIsEmptyAndOneThatIsNoTextIsRepaired) {
  const auto none = get("/api/v1/jobs/1/logs?rank=7").json();
  EXPECT_EQ(none["exists"], false);
  EXPECT_EQ(none["text"], "");
  EXPECT_EQ(get("/api/v1/jobs/1/logs?attempt=5").json()["exists"], false);
  controller_.append_log(1, 1, 0, "bad \xff\xfe bytes\n");
  EXPECT_EQ(get("/api/v1/jobs/1/logs").json()["text"], "bad \uFFFD\uFFFD bytes\n");
}

TEST_F(Api, AHugeLineIsCutToABoundedAnswer) {
  controller_.append_log(1, 1, 0, std::string(10 << 20, 'x') + "\nlast\n");
  const auto tail = get("/api/v1/jobs/1/logs?tail=2").json();
  EXPECT_EQ(tail["cut"], true);
  EXPECT_LE(tail["text"].get<std::string>().size(), 1u << 20);
  EXPECT_LE(get("/api/v1/jobs/1/logs?offset=0").json()["text"].get<std::string>().size(), 64u << 10);
}

TEST_F(Api, MetricsPageSpeaksPrometheus) {
  controller_.add_event(1, "rank_joined", "rank 0 joined");
  controller_.add_event(2, "rank_exited", "rank 0 exited with 1");
  get("/metrics");  // a second scrape must not count the events twice
  const auto answer = get("/metrics");
  EXPECT_TRUE(answer.headers.at("content-type").starts_with("text/plain; version=0.0.4"));
  for (const char* line : {"muster_jobs{state=\"running\"} 1\n", "muster_jobs{state=\"succeeded\"} 0\n",
                           "muster_events_total{type=\"rank_joined\"} 1\n",
                           "muster_attempts_ended_total{cause=\"failed\"} 1\n", "muster_store_writable 1\n"})
    EXPECT_NE(answer.body.find(line), std::string::npos) << line << answer.body;
}

TEST_F(Api, CountersOfEventsDoNotBeginWithWhatWasStoredBeforeMusterdStarted) {
  controller_.add_event(1, "rank_joined", "rank 0 joined");
  start();
  controller_.add_event(2, "rank_exited", "rank 0 exited with 1");
  const auto body = get("/metrics").body;
  EXPECT_NE(body.find("muster_events_total{type=\"rank_exited\"} 1\n"), std::string::npos) << body;
  EXPECT_EQ(body.find("rank_joined"), std::string::npos) << body;
}

TEST_F(Api, HealthSaysWhatKeepsMusterdFromItsWorkAndNamesNoFile) {
  controller_.set_problems("the disk is full: nothing more can be written to /var/lib/muster/muster.db", "no answer");
  const auto answer = Client(server_->port()).ask("GET", "/healthz");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, R"({"ok":false,"problems":["the store takes no writes","the scheduler does not answer"]})");
  controller_.set_problems("", "");
  EXPECT_EQ(Client(server_->port()).ask("GET", "/healthz").status, 503) << "the controller is asked once a second";
}

TEST_F(Api, AssetsWithAHashInTheirNameAreImmutableAndTheRestIsRevalidated) {
  const auto page = get("/");
  EXPECT_EQ(page.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(ask("GET", "/", {"If-None-Match: " + page.headers.at("etag")}).status, 304);
  const auto from = page.body.find("/app-"), to = page.body.find('"', from);
  const auto asset = get(page.body.substr(from, to - from));
  EXPECT_EQ(asset.status, 200);
  EXPECT_NE(asset.headers.at("cache-control").find("immutable"), std::string::npos);
  EXPECT_EQ(page.body.find("://"), std::string::npos) << "the page loads something from elsewhere";
}

TEST_F(Api, HeadAnswersAsGetWithoutBody) {
  Client client(server_->port());
  const auto head = client.ask("HEAD", "/healthz");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "11");
  EXPECT_EQ(client.ask("GET", "/healthz").body, R"({"ok":true})");  // the first answer had no bytes left over
}
