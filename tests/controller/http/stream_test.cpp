// Goal: a reader of the event stream gets every event once and in order, and a slow reader does not harm others.
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "controller/http/feed.h"
#include "controller/net/connections.h"
#include "tests/controller/http/fixture.h"

using Stream = HttpTest;

namespace {

int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_F(Stream, BeginsWithHelloAndTheIdWhereAReconnectGoesOn) {
  controller_.add_event(1, "rank_joined", "before anyone listened");
  const auto stream = open_stream();
  const auto answer = stream->receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(answer.headers.at("cache-control"), "no-store");
  EXPECT_NE(stream->read_until("\n\n").find("id: 1\nevent: hello\n"), std::string::npos);
}

TEST_F(Stream, AReaderThatIsThereBeforeTheFeedsThreadBeginsAtTheNewestEventToo) {
  controller_.add_event(1, "note", "before anyone listened");
  for (int i = 0; i < 10; ++i) {
    std::promise<std::string> first;
    std::atomic<bool> told = false;
    http::Feed feed(controller_);
    feed.subscribe(std::nullopt, [&](const http::Feed::Text& text) {
      if (!told.exchange(true)) first.set_value(*text);
    });
    auto text = first.get_future();
    ASSERT_EQ(text.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    EXPECT_TRUE(text.get().starts_with("id: 1\nevent: hello\n"));
  }
}

TEST_F(Stream, TellsAnEventToEveryReaderWithItsRowId) {
  const auto one = open_stream(), two = open_stream();
  one->read_until("event: hello");
  two->read_until("event: hello");
  controller_.add_event(1, "rank_exited", "rank 1 exited with 3");
  for (auto* stream : {one.get(), two.get()}) {
    const auto text = stream->read_until("rank 1 exited with 3");
    EXPECT_NE(text.find("id: 1\nevent: job-changed\n"), std::string::npos) << text;
    EXPECT_NE(text.find("\"job_id\":1"), std::string::npos) << text;
    EXPECT_NE(text.find("\"version\":1"), std::string::npos) << text;
    EXPECT_EQ(text.find("payload"), std::string::npos) << text;
  }
}

TEST_F(Stream, LastEventIdReplaysWhatWasMissedOnceAndInOrder) {
  for (int i = 1; i <= 600; ++i) controller_.add_event(1, "note", "number " + std::to_string(i) + ".");
  const auto stream = open_stream("Last-Event-ID: 10\r\n");
  std::string text = stream->read_until("number 600.");
  EXPECT_EQ(text.find("event: reset"), std::string::npos);
  EXPECT_EQ(count(text, "event: job-changed"), 590);
  EXPECT_EQ(text.find("number 10."), std::string::npos);
  EXPECT_LT(text.find("number 11."), text.find("number 12."));
  controller_.add_event(1, "note", "number 601.");
  text = stream->read_until("number 601.");
  EXPECT_EQ(count(text, "event: job-changed"), 1) << text;
}

TEST_F(Stream, AfterInTheAddressDoesTheSameForPagesThatTakeOver) {
  controller_.add_event(1, "note", "first.");
  controller_.add_event(1, "note", "second.");
  const auto text = open_stream("", "?after=1")->read_until("second.");
  EXPECT_NE(text, "");
  EXPECT_EQ(text.find("first."), std::string::npos);
}

TEST_F(Stream, AReconnectAfterARestartOfTheServerMissesNothing) {
  const int port = server_->port();
  auto stream = open_stream();
  stream->read_until("event: hello");
  controller_.add_event(1, "note", "seen.");
  ASSERT_NE(stream->read_until("seen."), "");
  server_.reset();
  controller_.add_event(1, "note", "missed.");
  start("127.0.0.1:" + std::to_string(port));
  stream = open_stream("Last-Event-ID: 1\r\n");
  EXPECT_NE(stream->read_until("missed."), "");
}

TEST_F(Stream, TooMuchMissedOrAnotherStoreMeansLoadEverythingAnew) {
  for (std::uint32_t i = 0; i < 1300; ++i) controller_.add_event(1, "note", "n");
  auto text = open_stream("Last-Event-ID: 1\r\n")->read_until("event: reset");
  EXPECT_EQ(count(text, "job-changed"), 0);
  EXPECT_NE(text.find("id: 1300"), std::string::npos);
  EXPECT_NE(open_stream("Last-Event-ID: 99999\r\n")->read_until("event: reset"), "");
  text = open_stream("Last-Event-ID: nonsense\r\n")->read_until("event: hello");
  EXPECT_NE(text.find("id: 1300"), std::string::npos);
}

TEST_F(Stream, ProgressComesAtMostTwiceASecondHoweverFastTheSteps) {
  const auto stream = open_stream();
  stream->read_until("event: hello");
  const auto start = std::chrono::steady_clock::now();
  for (int step = 1; step <= 300; ++step) {
    controller_.add_metric(1, metric(1, step, 5.0));
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
  }
  const auto text = stream->read_until("\"step\":300");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_NE(text, "");
  EXPECT_LE(count(text, "event: progress"), 2 * seconds + 2) << seconds;
  EXPECT_NE(text.find("\"loss\":5.0"), std::string::npos);
}

TEST_F(Stream, OneStreamTooManyIs503AndAClosedOneMakesRoom) {
  // One address may have half of the connections of people.
  server_ = http::serve(controller_, "127.0.0.1:0",
                        std::make_shared<net::Connections>(net::Shares{
                            .strangers = 4, .waiting = 4, .people = 4 * http::kMaxStreams, .ranks = 4, .asking = 4}));
  std::vector<std::unique_ptr<Client>> streams;
  for (std::size_t i = 0; i < http::kMaxStreams; ++i) {
    streams.push_back(open_stream());
    ASSERT_EQ(streams.back()->receive().status, 200);
  }
  EXPECT_EQ(open_stream()->receive().status, 503);
  streams.pop_back();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (server_->open_streams() == http::kMaxStreams && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(open_stream()->receive().status, 200);
}

TEST_F(Stream, AReaderThatDoesNotReadIsCutOffAndTheOthersAreServed) {
  const auto slow = open_stream();
  slow->read_little();
  const auto quick = open_stream();
  quick->read_until("event: hello");
  const std::string filler(60000, 'x');
  // The test sends more than the backlog and all buffers of the kernel can hold.
  for (int i = 0; i < 400 && server_->open_streams() == 2; ++i) {
    controller_.add_event(1, "note", filler + std::to_string(i) + ".");
    ASSERT_NE(quick->read_until(std::to_string(i) + "."), "");
  }
  EXPECT_EQ(server_->open_streams(), 1u);
}
