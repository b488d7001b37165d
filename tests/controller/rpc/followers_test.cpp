// Goal: a call with many messages holds no thread, whatever its client does, and one user takes no more than a share.
// Method: a real server and clients that do not read; a server of its own where the patience with them is short.
#include "controller/rpc/followers.h"

#include <filesystem>
#include <fstream>

#include "tests/controller/rpc/harness.h"
#include "tests/temporary_folder.h"

namespace {

using namespace rpc::testing;  // NOLINT
using grpc::StatusCode;
using rpc::Followers;

std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

/// A connection of a client that reads no further ahead than 64 KiB.
std::unique_ptr<muster::v1::JobService::Stub> connect_narrowly(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return muster::v1::JobService::NewStub(
      grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(), arguments));
}

struct CallOf : Call {
  explicit CallOf(const std::string& user) { AddMetadata("muster-user", user); }
};

class Readers : public Rpc {
 protected:
  void SetUp() override {
    controller_.set_log_folder(folder_.path());
    controller_.put_running(1);
    std::ofstream(controller_.log_path(1, 1, 0)) << std::string(2 << 20, 'x');
  }
  /// Reads the log, and takes nothing after its first part.
  void begin(const std::string& user) {
    calls_.push_back(std::make_unique<CallOf>(user));
    muster::v1::LogsRequest request;
    request.set_job_id(1);
    reads_.push_back(narrow_->Logs(calls_.back().get(), request));
  }
  bool is_first_part_there() {
    muster::v1::LogChunk chunk;
    return reads_.back()->Read(&chunk);
  }

  const test::TemporaryFolder folder_;
  const std::unique_ptr<muster::v1::JobService::Stub> narrow_ = connect_narrowly(server_->port());
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<std::unique_ptr<grpc::ClientReader<muster::v1::LogChunk>>> reads_;
};

TEST_F(Readers, OfOneUserAreBoundedAndLeavePlacesForOthers) {
  std::ptrdiff_t before = 0;
  for (std::size_t i = 0; i < Followers::kMostReadsOfUser; ++i) {
    begin("ben");
    ASSERT_TRUE(is_first_part_there()) << i;
    if (i == 8) before = threads();
  }
  EXPECT_LE(threads(), before + 8) << "a client that does not read holds no thread";
  begin("ben");
  EXPECT_FALSE(is_first_part_there());
  const auto status = reads_.back()->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(status.error_message().starts_with("max_streams_of_user: ben has 64 reads open"))
      << status.error_message();
  begin("eva");
  EXPECT_TRUE(is_first_part_there());
  CallOf follows("ben");
  muster::v1::Job job;
  EXPECT_TRUE(jobs_->Watch(&follows, job_request(1))->Read(&job)) << "followers are counted apart";
  follows.TryCancel();
  for (auto& call : calls_) call->TryCancel();
  EXPECT_TRUE(streams_become(0));
}

TEST_F(Rpc, StacksThatAreAskedForAreWaitedForWithoutAThread) {
  controller_.put_running(1);
  muster::v1::StacksView view;
  view.set_job_id(1);
  view.set_attempt(1);
  view.mutable_shown()->set_number(5);
  for (std::uint32_t rank = 0; rank < 300; ++rank) view.add_ranks()->set_rank(rank);
  view.mutable_ranks(7)->set_problem("it is gone");
  controller_.set_stacks(view);
  muster::v1::StacksRequest request;
  request.set_job_id(1);
  request.set_ask(true);
  constexpr std::size_t kAsking = 200;
  std::vector<std::unique_ptr<Call>> calls;
  std::vector<std::unique_ptr<grpc::ClientReader<muster::v1::StacksView>>> asking;
  const auto stubs = {muster::v1::JobService::NewStub(connect(server_->port())),
                      muster::v1::JobService::NewStub(connect(server_->port()))};
  const auto before = threads();
  for (const auto& stub : stubs) {
    for (std::size_t i = 0; i < kAsking / stubs.size(); ++i) {
      calls.push_back(std::make_unique<CallOf>("user" + std::to_string(calls.size() / Followers::kMostOfUser)));
      asking.push_back(stub->Stacks(calls.back().get(), request));
    }
  }
  ASSERT_TRUE(streams_become(kAsking));
  EXPECT_LE(threads(), before + 16);
  view.mutable_shown()->set_over(true);
  controller_.set_stacks(view);
  controller_.touch();
  for (auto& one : asking) {
    muster::v1::StacksView part;
    ASSERT_TRUE(one->Read(&part));
    EXPECT_EQ(part.ranks_size(), 0) << "the texts come afterwards";
    std::vector<std::string> texts;
    while (one->Read(&part)) {
      for (const auto& rank : part.ranks()) texts.push_back(rank.problem() + rank.text());
    }
    EXPECT_TRUE(one->Finish().ok());
    ASSERT_EQ(texts.size(), 300U);
    EXPECT_EQ(texts[7], "it is gone");
    EXPECT_EQ(texts[299], "stack 299 of set 5");
  }
  EXPECT_EQ(controller_.stacks_asked, static_cast<int>(kAsking)) << "each asks once, and then waits";
}

/// Tells as long as somebody listens.
class Endless final : public rpc::Source<muster::v1::Event> {
 public:
  rpc::Turn next(muster::v1::Event& message) override {
    message.set_text(std::string(64 << 10, 'x'));
    return rpc::Turn::message();
  }
};

// Goal: a client that takes nothing does not stay for ever.
TEST(PatienceWithClients, EndsACallWhoseMessagesAreNotTaken) {
  FakeController controller;
  Followers followers(controller, 400ms);
  struct Service final : muster::v1::JobService::WithCallbackMethod_Events<muster::v1::JobService::Service> {
    explicit Service(Followers& all) : followers(all) {}
    grpc::ServerWriteReactor<muster::v1::Event>* Events(grpc::CallbackServerContext* context,
                                                        const muster::v1::EventsRequest*) override {
      return followers.begin<muster::v1::Event>(*context, {.follows = false}, std::make_unique<Endless>());
    }
    Followers& followers;
  };
  Service service(followers);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const auto jobs = connect_narrowly(port);
  Call stuck_call, reading_call;
  muster::v1::Event event;
  const auto stuck = jobs->Events(&stuck_call, {});
  ASSERT_TRUE(stuck->Read(&event));
  const auto reading = jobs->Events(&reading_call, {});
  ASSERT_TRUE(reading->Read(&event));
  const auto until = Clock::now() + 10s;
  while (followers.open() != 1 && Clock::now() < until) ASSERT_TRUE(reading->Read(&event)) << "who reads is served";
  EXPECT_EQ(followers.open(), 1U) << "who does not read is gone";
  while (stuck->Read(&event)) {
  }
  EXPECT_EQ(stuck->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(reading->Read(&event));
  reading_call.TryCancel();
  followers.stop();
  server->Shutdown(std::chrono::system_clock::now() + 1s);
}

}  // namespace
