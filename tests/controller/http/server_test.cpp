// Goal: the server keeps its limits under many and hostile clients, and ends in order.
#include <chrono>
#include <thread>

#include "controller/net/connections.h"
#include "controller/net/self_probe.h"
#include "tests/controller/http/fixture.h"

using Server = HttpTest;

namespace {

template <typename Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace

TEST_F(Server, APortInUseIsRefusedWithAddressAndRemedy) {
  const std::string address = "127.0.0.1:" + std::to_string(server_->port());
  try {
    http::serve(controller_, address);
    FAIL() << "two servers share a port";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find(address), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("choose another port"), std::string::npos) << error.what();
  }
}

TEST_F(Server, AnAddressThatIsNoneIsRefused) {
  for (const char* address : {"", "8080", "127.0.0.1:", ":80", "192.0.2.1:0", "127.0.0.1:99999"})
    EXPECT_THROW(http::serve(controller_, address), std::runtime_error) << address;
}

TEST_F(Server, ServesTheSamePortAgainAtOnceAfterAShutdown) {
  const int port = server_->port();
  const auto stream = open_stream();
  stream->read_until("event: hello");
  server_->shutdown();
  server_->shutdown();
  server_.reset();
  EXPECT_TRUE(stream->is_closed_by_peer());
  start("127.0.0.1:" + std::to_string(port));
  EXPECT_EQ(get("/healthz").status, 200);
}

TEST_F(Server, ShutsDownWithinABoundWhileClientsHangAround) {
  Client idle(server_->port()), half(server_->port());
  EXPECT_EQ(idle.ask("GET", "/healthz").status, 200);
  half.send("GET / HTTP/1.1\r\nHost: loc");
  const auto stream = open_stream();
  ASSERT_TRUE(eventually([&] { return server_->open_connections() == 3; }));
  const auto before = std::chrono::steady_clock::now();
  server_->shutdown();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(3));
}

TEST_F(Server, AnswersARunningRequestBeforeItShutsDown) {
  Client client(server_->port());
  controller_.hang();
  client.send("GET /api/v1/jobs/1 HTTP/1.1\r\nHost: localhost\r\n" + bearer_ + "\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return server_->open_connections() == 1; }));
  // An answer to this second request shows that the first one has reached the controller.
  EXPECT_EQ(Client(server_->port()).ask("GET", "/").status, 200);
  std::thread ending([&] { server_->shutdown(); });
  controller_.let_go();
  EXPECT_EQ(client.receive().status, 200);
  ending.join();
}

TEST_F(Server, MalformedRequestsAre400AndTheConnectionIsClosed) {
  for (const char* garbage :
       {"\x16\x03\x01\x02 tls hello\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET nothing HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n"}) {
    Client client(server_->port());
    client.send(garbage);
    EXPECT_EQ(client.receive().status, 400) << garbage;
    EXPECT_TRUE(client.is_closed_by_peer()) << garbage;
  }
  EXPECT_EQ(get("/healthz").status, 200);
}

TEST_F(Server, TooLargeHeadersAre431AndTooLargeBodies413) {
  Client headers(server_->port());
  headers.send("GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + std::string(http::kMaxHeaderBytes, 'x') + "\r\n\r\n");
  EXPECT_EQ(headers.receive().status, 431);
  Client body(server_->port());
  body.send("POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
            std::to_string(http::kMaxBodyBytes + 1) + "\r\n\r\n");
  EXPECT_EQ(body.receive().status, 413);
  Client chunked(server_->port());
  chunked.send("POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n" +
               std::string(0x20000, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.receive().status, 413);
}

TEST_F(Server, RequestsInPiecesAndOneAfterAnotherOnOneConnectionAreAnswered) {
  Client client(server_->port());
  for (const char piece : std::string("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    ASSERT_TRUE(client.send(std::string(1, piece)));
  EXPECT_EQ(client.receive().status, 200);
  // Two requests are sent at once and answered in order.
  client.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_EQ(client.receive().status, 404);
}

TEST_F(Server, ThoseWhoHaveATokenKeepTheirConnectionsWhateverStrangersDo) {
  server_.reset();
  const auto connections = std::make_shared<net::Connections>(
      net::Shares{.strangers = 4, .waiting = 4, .people = 8, .ranks = 4, .asking = 4});
  server_ = http::serve(controller_, "127.0.0.1:0", connections);
  Client person(server_->port());
  ASSERT_EQ(person.ask("GET", "/api/v1/jobs/1", {bearer_}).status, 200);
  EXPECT_EQ(connections->open().people, 1U);
  std::vector<std::unique_ptr<Client>> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(std::make_unique<Client>(server_->port()));
    strangers.back()->send("GET / HTTP/1.1\r\nX-Long: " + std::string(i % 2 ? 0 : 200, 'x'));
  }
  ASSERT_TRUE(eventually([&] { return connections->crowd().total(net::Port::kDashboard) >= 16; }));
  EXPECT_TRUE(eventually([&] { return get("/healthz").status == 200; })) << "one more gets its turn";
  EXPECT_EQ(person.ask("GET", "/api/v1/jobs/1", {bearer_}).status, 200);
  EXPECT_LE(server_->open_connections(), 6U);
}

TEST_F(Server, ABodyThatTricklesKeepsNobodyOut) {
  server_.reset();
  const auto connections = std::make_shared<net::Connections>(
      net::Shares{.strangers = 2, .waiting = 4, .people = 4, .ranks = 4, .asking = 8});
  server_ = http::serve(controller_, "127.0.0.1:0", connections);
  Client first(server_->port()), second(server_->port());
  for (auto* one : {&first, &second}) {
    one->send("POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n" +
              std::string(500, ' '));
  }
  ASSERT_TRUE(eventually([&] { return connections->open().strangers == 2; }));
  const auto before = std::chrono::steady_clock::now();
  ASSERT_TRUE(eventually([&] {
    first.send(" ");
    second.send(" ");
    return Client(server_->port()).ask("GET", "/healthz").status == 200;
  }));
  EXPECT_LT(std::chrono::steady_clock::now() - before, net::Connections::kOurTurn - std::chrono::seconds(1));
}

TEST_F(Server, MusterdsOwnProbeIsAnsweredThoughTheControllerHangs) {
  controller_.hang();
  std::vector<std::unique_ptr<Client>> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(std::make_unique<Client>(server_->port()));
    waiting.back()->send("GET /api/v1/jobs/1 HTTP/1.1\r\nHost: localhost\r\n" + bearer_ + "\r\n\r\n");
  }
  ASSERT_TRUE(eventually([&] { return server_->open_connections() == 8; }));
  const auto port = net::http_port("127.0.0.1", server_->port(), ScriptedController::kToken, {});
  EXPECT_EQ(net::why_silent(port, std::chrono::seconds(5), true), "");
  controller_.let_go();
}

TEST_F(Server, AFirstRequestMustBeWholeWithinItsTimeHoweverItTrickles) {
  Client half(server_->port());
  const auto before = std::chrono::steady_clock::now();
  half.send("GET / HTTP/1.1\r\nHost: " + std::string(300, 'x'));
  const auto limit = http::kFirstRequestWithin + std::chrono::seconds(4);
  while (half.send("x") && std::chrono::steady_clock::now() - before < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - before, limit);
}

TEST_F(Server, AControllerThatHangsDoesNotStopOtherConnectionsFromBeingAccepted) {
  controller_.hang();
  std::vector<std::unique_ptr<Client>> waiting;
  for (int i = 0; i < 20; ++i) {
    waiting.push_back(std::make_unique<Client>(server_->port()));
    waiting.back()->send("GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n" + bearer_ + "\r\n\r\n");
  }
  ASSERT_TRUE(eventually([&] { return server_->open_connections() == 20; }));
  controller_.let_go();
  for (auto& client : waiting) EXPECT_EQ(client->receive().status, 200);
}
