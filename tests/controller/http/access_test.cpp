// Goal: only requests with the token or a session, the right host and the right origin are answered.
#include "tests/controller/http/fixture.h"

using Access = HttpTest;

TEST_F(Access, WithoutTokenEverythingOfTheApiIs401WithARemedy) {
  for (const char* target : {"/api/v1/jobs", "/api/v1/jobs/1", "/api/v1/jobs/1/logs", "/api/v1/status",
                             "/api/v1/stream", "/metrics", "/api/v1/nothing"}) {
    const auto answer = Client(server_->port()).ask("GET", target);
    EXPECT_EQ(answer.status, 401) << target;
    EXPECT_NE(answer.json().value("remedy", ""), "") << target;
  }
  EXPECT_EQ(Client(server_->port()).ask("POST", "/api/v1/jobs/1/cancel", {"X-Muster: 1"}).status, 401);
}

TEST_F(Access, HealthAndPagesNeedNoToken) {
  EXPECT_EQ(Client(server_->port()).ask("GET", "/healthz").body, R"({"ok":true})");
  for (const char* page : {"/", "/login", "/jobs/7"}) {
    const auto answer = Client(server_->port()).ask("GET", page);
    EXPECT_EQ(answer.status, 200) << page;
    EXPECT_EQ(answer.headers.at("content-type"), "text/html; charset=utf-8") << page;
  }
}

TEST_F(Access, BearerTokenIsTakenAndAWrongOneIsNot) {
  EXPECT_EQ(get("/api/v1/status").status, 200);
  EXPECT_EQ(Client(server_->port()).ask("GET", "/api/v1/status", {"Authorization: Bearer guess"}).status, 401);
  EXPECT_EQ(Client(server_->port()).ask("GET", "/api/v1/status", {"Authorization: Bearer "}).status, 401);
}

TEST_F(Access, LoginGivesAnHttpOnlySameSiteCookieThatIsNotTheToken) {
  Client client(server_->port());
  const auto answer = client.ask("POST", "/api/v1/login", {"X-Muster: 1"}, R"({"token":"the-people-token"})");
  ASSERT_EQ(answer.status, 200);
  const std::string cookie = answer.headers.at("set-cookie");
  EXPECT_NE(cookie.find("HttpOnly"), std::string::npos);
  EXPECT_NE(cookie.find("SameSite=Strict"), std::string::npos);
  EXPECT_EQ(cookie.find("the-people-token"), std::string::npos);
  const std::string pair = "Cookie: other=1; " + cookie.substr(0, cookie.find(';'));
  EXPECT_EQ(client.ask("GET", "/api/v1/status", {pair}).status, 200);

  EXPECT_EQ(client.ask("POST", "/api/v1/logout", {pair, "X-Muster: 1"}).status, 200);
  EXPECT_EQ(client.ask("GET", "/api/v1/status", {pair}).status, 401);
}

TEST_F(Access, LoginRefusesAWrongTokenAndABodyThatIsNone) {
  Client client(server_->port());
  EXPECT_EQ(client.ask("POST", "/api/v1/login", {"X-Muster: 1"}, R"({"token":"guess"})").status, 401);
  for (const char* body : {"", "{", "[]", R"({"token":7})", "\xff\xfe"})
    EXPECT_EQ(client.ask("POST", "/api/v1/login", {"X-Muster: 1"}, body).status, 400) << body;
}

TEST_F(Access, CookiesOfTwoControllersOnOneHostDoNotMeet) {
  const auto answer =
      Client(server_->port()).ask("POST", "/api/v1/login", {"X-Muster: 1"}, R"({"token":"the-people-token"})");
  EXPECT_NE(answer.headers.at("set-cookie").find(std::to_string(server_->port())), std::string::npos);
}

TEST_F(Access, ChangesNeedTheCustomHeader) {
  for (const char* target : {"/api/v1/jobs/1/cancel", "/api/v1/jobs/1/requeue", "/api/v1/login", "/api/v1/logout"}) {
    const auto answer = ask("POST", target, {}, "{}");
    EXPECT_EQ(answer.status, 403) << target;
    EXPECT_NE(answer.error().find("X-Muster"), std::string::npos);
  }
  EXPECT_EQ(controller_.last_event_id(), 0);
}

TEST_F(Access, ChangesFromAnotherOriginAreRefused) {
  const std::string own = "127.0.0.1:" + std::to_string(server_->port());
  for (const char* origin : {"http://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1"})
    EXPECT_EQ(ask("POST", "/api/v1/jobs/1/cancel", {"X-Muster: 1", std::string("Origin: ") + origin}).status, 403)
        << origin;
  EXPECT_EQ(controller_.last_event_id(), 0);
  EXPECT_EQ(ask("POST", "/api/v1/jobs/1/cancel", {"X-Muster: 1", "Origin: http://" + own}).status, 200);
}

TEST_F(Access, AReboundNameIsRefusedEvenWithTheToken) {
  for (const char* host : {"evil.example", "evil.example:80", "10.0.0.1", "localhost.evil.example", "", "[::2]:80"}) {
    EXPECT_EQ(ask("GET", "/api/v1/jobs", {std::string("Host: ") + host}).status, 421) << host;
    EXPECT_EQ(ask("GET", "/", {std::string("Host: ") + host}).status, 421) << host;
  }
  for (const char* host : {"localhost", "LOCALHOST:9", "127.0.0.1:8080", "127.0.0.2", "[::1]:80"})
    EXPECT_EQ(ask("GET", "/api/v1/jobs", {std::string("Host: ") + host}).status, 200) << host;
}

TEST_F(Access, ListeningEverywhereAcceptsAddressesButStillNoForeignNames) {
  start("0.0.0.0:0");
  EXPECT_EQ(ask("GET", "/api/v1/jobs", {"Host: 10.0.0.1:80"}).status, 200);
  EXPECT_EQ(ask("GET", "/api/v1/jobs", {"Host: evil.example"}).status, 421);
}

TEST_F(Access, EveryAnswerCarriesTheSecurityHeaders) {
  for (const char* target : {"/", "/api/v1/jobs", "/healthz", "/nothing"}) {
    const auto headers = get(target).headers;
    const std::string policy = headers.at("content-security-policy");
    EXPECT_NE(policy.find("default-src 'none'"), std::string::npos) << target;
    EXPECT_EQ(policy.find("unsafe"), std::string::npos) << target;
    EXPECT_EQ(headers.at("x-content-type-options"), "nosniff");
    EXPECT_EQ(headers.at("x-frame-options"), "DENY");
    EXPECT_EQ(headers.at("referrer-policy"), "no-referrer");
    EXPECT_NE(headers.at("cache-control"), "") << target;
  }
}
