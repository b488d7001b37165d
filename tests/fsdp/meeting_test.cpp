// Goal: while ranks meet, those that have not come are named in seconds, and one that has come and is gone ends the
// wait of all with its name. Method: ranks as threads over a store in memory. A socket that says what a rank's watcher
// says, and closes, stands for a process that was killed. The timeouts are a minute, so each error within seconds is
// due to that end. killed_rank_test does the same with processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <latch>
#include <mutex>
#include <set>
#include <sstream>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "fsdp/comm/device_mesh.h"
#include "fsdp/comm/sockets/connect.h"
#include "fsdp/comm/watch/watcher.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/rank_threads.h"

namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Lt;

fsdp::MeshOptions patient(bool shared_memory) {
  fsdp::MeshOptions options;
  options.timeout = 60s;
  options.late_after = 60s;
  options.shared_memory = shared_memory;
  return options;
}

/// Lines of logs that begin so. On a busy machine ranks are late that need not be.
class Logs {
 public:
  explicit Logs(std::string beginning) : beginning_(std::move(beginning)) {}
  /// `first` is called with the first line of this rank.
  std::function<void(const std::string&)> of(int rank, const std::function<void()>& first = {}) {
    return [this, rank, first](const std::string& text) {
      if (!text.starts_with(beginning_)) return;
      bool is_first = false;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        texts_.push_back(text);
        is_first = ranks_.insert(rank).second;
      }
      if (is_first && first) first();
    };
  }
  std::vector<std::string> texts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return texts_;
  }

 private:
  const std::string beginning_;
  std::mutex mutex_;
  std::vector<std::string> texts_;
  std::set<int> ranks_;
};

class MeetingOver : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MeetingOver, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "SharedMemory" : "Sockets"; });

TEST_P(MeetingOver, NamesTheRanksThatHaveNotComeInTheLogsOfAllOthers) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Logs logs("ranks 2 and 3 have not come for ");
  std::latch told(2);
  run_rank_threads(4, [&](int rank) {
    fsdp::MeshOptions options = patient(GetParam());
    options.late_after = 300ms;
    if (rank < 2) options.on_late = logs.of(rank, [&] { told.count_down(); });
    if (rank >= 2) told.wait();
    fsdp::DeviceMesh mesh(store, rank, 4, options);
    EXPECT_EQ(mesh.control().all_reduce(1.0), 4) << "being late is no error";
    mesh.control().barrier();
  });
  EXPECT_THAT(logs.texts().front(), HasSubstr(" to where the ranks meet, at rank 0, process "));
}

TEST_P(MeetingOver, NamesRankZeroWhereItHasNotCome) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Logs logs("rank 0 has not come for ");
  std::latch told(2);
  run_rank_threads(3, [&](int rank) {
    fsdp::MeshOptions options = patient(GetParam());
    options.late_after = 300ms;
    if (rank > 0) options.on_late = logs.of(rank, [&] { told.count_down(); });
    if (rank == 0) told.wait();
    fsdp::DeviceMesh mesh(store, rank, 3, options);
    mesh.control().barrier();
  });
  EXPECT_THAT(logs.texts().front(), HasSubstr("it has not opened the place where the ranks meet"));
}

/// Comes to rank 0's watcher as this rank, waits until rank 0 has read that, and ends.
void come_and_end(c10d::Store& store, int rank) {
  const auto bytes = store.get("watcher");
  std::istringstream card(std::string(bytes.begin(), bytes.end()));
  std::string secret, port, host;
  card >> secret >> port >> host;
  const base::Fd socket = fsdp::net::connect_to(host, port, 20s);
  const std::string hello = R"({"rank":)" + std::to_string(rank) + R"(,"secret":")" + secret +
                            R"(","who":"process 77 on node-9"})"
                            "\n";
  ASSERT_EQ(::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL), static_cast<ssize_t>(hello.size()));
}

TEST_P(MeetingOver, EndsWithTheNameOfARankThatHasComeAndIsGone) {
  for (const int ends : {1, 2}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto begin = std::chrono::steady_clock::now();
    run_rank_threads(3, [&](int rank) {
      const fsdp::MeshOptions options = patient(GetParam());
      if (rank == ends) {
        c10d::PrefixStore of_watcher("mesh/watcher", store);
        return come_and_end(of_watcher, rank);
      }
      // The first that hears of it gives up its mesh. The last one may hear of that first.
      EXPECT_THAT(error_of([&] { fsdp::DeviceMesh(store, rank, 3, options); }),
                  AllOf(HasSubstr("meeting of the ranks: rank "), HasSubstr(" is gone: ")));
    });
    EXPECT_THAT(std::chrono::steady_clock::now() - begin, Lt(20s)) << "rank " << ends;
  }
}

// Rank 0 waits for the last rank, which never comes.
TEST(Meeting, EndsAtRankZeroWhenOneThatHasComeIsGoneThoughOthersHaveNotCome) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  run_rank_threads(2, [&](int rank) {
    if (rank == 1) {
      c10d::PrefixStore of_watcher("mesh/watcher", store);
      return come_and_end(of_watcher, 1);
    }
    EXPECT_THAT(error_of([&] { fsdp::DeviceMesh(store, 0, 3, patient(false)); }),
                HasSubstr("meeting of the ranks: rank 1 is gone: process 77 on node-9 has ended"));
  });
}

TEST(Meeting, SaysAfterTheTimeoutWhoDidNotCome) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  fsdp::MeshOptions options = patient(false);
  options.timeout = 200ms;
  EXPECT_THAT(error_of([&] { fsdp::DeviceMesh(store, 0, 4, options); }),
              HasSubstr("meeting of the ranks: ranks 1, 2 and 3 did not come within 200 ms"));
}

TEST(Meeting, AStoreThatRankZeroDoesNotServeYetIsToldWithItsPlace) {
  std::uint16_t closed = 0;
  { closed = fsdp::listen_store("127.0.0.1").port; }
  Logs logs("rank 0 has not come for ");
  EXPECT_THAT(error_of([&] { fsdp::connect_store("127.0.0.1", closed, 1s, logs.of(1), 100ms); }),
              HasSubstr("not reached within 1000 ms"));
  ASSERT_FALSE(logs.texts().empty());
  EXPECT_THAT(logs.texts(),
              Each(HasSubstr(" s: it serves no rendezvous store at 127.0.0.1:" + std::to_string(closed))));
}

// An error of the store is no timeout, so it does not wait for one.
TEST(Meeting, OfAStoreThatIsGoneEndsAtOnce) {
  struct Broken : c10d::PrefixStore {
    explicit Broken(c10::intrusive_ptr<c10d::Store> store) : PrefixStore("x", std::move(store)) {}
    bool check(const std::vector<std::string>&) override { throw std::runtime_error("the connection is gone"); }
  };
  const auto broken = c10::make_intrusive<Broken>(c10::make_intrusive<c10d::HashStore>());
  fsdp::watch::MeetingStore store("mesh", broken, {});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of([&] { store.wait({"key"}, 60s); }), HasSubstr("the connection is gone"));
  EXPECT_THAT(std::chrono::steady_clock::now() - begin, Lt(30s));
}

}  // namespace
