#include "controller/executors/slurm/node_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "tests/controller/executors/slurm/listening_socket.h"
#include "tests/no_descriptors.h"

namespace executors::on_slurm {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Word = NodeCheck::Word;

bool answers(const ::slurm::Node& node, const std::string& slurmd_port, core::Millis limit) {
  return ask({node}, slurmd_port, limit).at(node.name);
}

TEST(NodeCheck, ANodeIsAskedOnceForAllWhoMissItAndItsAnswerHoldsForAWhile) {
  NodeCheck check;
  EXPECT_THAT(check.wanted(), IsEmpty());
  EXPECT_EQ(check.word("node1", 0ms), Word::kAsking);
  EXPECT_EQ(check.word("node1", 100ms), Word::kAsking);
  EXPECT_THAT(check.wanted(), ElementsAre("node1"));
  check.answered("node1", true, 200ms);
  EXPECT_THAT(check.wanted(), IsEmpty());
  EXPECT_EQ(check.word("node1", 5199ms), Word::kAnswers);
  EXPECT_EQ(check.word("node1", 5200ms), Word::kAsking) << "asked anew";
  check.answered("node1", false, 5300ms);
  EXPECT_EQ(check.word("node1", 5400ms), Word::kSilent);
}

TEST(NodeCheck, AnAnswerThatDoesNotComeInTimeIsNone) {
  NodeCheck check;
  EXPECT_EQ(check.word("node1", 0ms), Word::kAsking);
  EXPECT_EQ(check.word("node1", 9999ms), Word::kAsking);
  EXPECT_EQ(check.word("node1", 10'000ms), Word::kSilent);
  check.answered("node1", true, 10'500ms);
  EXPECT_EQ(check.word("node1", 10'600ms), Word::kAnswers) << "late, and yet an answer";
}

// A round in which the status file of each silent rank is read may take longer than an answer is fresh.
TEST(NodeCheck, AnAnswerIsKeptUntilTheRoundAfterItCame) {
  NodeCheck check;
  EXPECT_EQ(check.word("node1", 0s), Word::kAsking);
  check.answered("node1", false, 1s);
  EXPECT_EQ(check.word("node1", 12s), Word::kSilent);
  EXPECT_EQ(check.word("node1", 13s), Word::kAsking) << "it is old, and was told";
  check.answered("node1", false, 14s);
  EXPECT_EQ(check.word("node1", 44s), Word::kAsking) << "it says nothing of now";
}

TEST(NodeCheck, WhatNobodyAsksAboutIsForgotten) {
  NodeCheck check;
  static_cast<void>(check.word("node1", 0ms));
  check.forget_old(60s);
  EXPECT_THAT(check.wanted(), IsEmpty());
}

TEST(NodeCheck, ANodeAnswersWhereSlurmCallsItUpAndItsSlurmdTakesAConnection) {
  const testing::ListeningSocket listens;
  ::slurm::Node node;
  node.name = "node1";
  node.address = "127.0.0.1";
  node.states = {"MIXED"};
  node.fields["Port"] = std::to_string(listens.port());
  EXPECT_TRUE(answers(node, "", 1s));
  node.responds = false;
  EXPECT_FALSE(answers(node, "", 1s)) << "Slurm misses it";
  node.responds = true;
  node.states = {"DOWN", "DRAIN"};
  EXPECT_FALSE(answers(node, "", 1s));
  node.states = {"IDLE"};
  const test::ClaimedPort nobodys;
  node.fields["Port"] = std::to_string(nobodys.number());
  EXPECT_FALSE(answers(node, "", 1s)) << "nobody listens there";
}

// Slurm names a node's port only where it is not the one of its configuration.
TEST(NodeCheck, ANodeWithoutAPortOfItsOwnIsAskedAtThatOfTheConfiguration) {
  const testing::ListeningSocket listens;
  const auto port = listens.port();
  ::slurm::Node node;
  node.name = "node1";
  node.address = "127.0.0.1";
  node.states = {"IDLE"};
  EXPECT_TRUE(answers(node, std::to_string(port), 1s));
  EXPECT_TRUE(answers(node, std::to_string(port - 1) + "-" + std::to_string(port + 1), 1s));
  EXPECT_THAT(ports_of(node, "6818-6820"), ElementsAre("6818", "6819", "6820"));
  EXPECT_THAT(ports_of(node, "7003"), ElementsAre("7003"));
  EXPECT_THAT(ports_of(node, ""), ElementsAre("6818"));
  EXPECT_THAT(ports_of(node, "(null)"), ElementsAre("6818"));
  EXPECT_EQ(ports_of(node, "1-60000").size(), 16U);
  node.fields["Port"] = "17001";
  EXPECT_THAT(ports_of(node, "6818"), ElementsAre("17001"));
}

/// A node whose slurmd does not take connections any more, nor refuses them: its queue is full.
class FullNode {
 public:
  FullNode() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 0), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    for (auto& client : clients_) {
      client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      ::connect(client, reinterpret_cast<const sockaddr*>(&address), size);
    }
  }
  ~FullNode() {
    for (const int client : clients_) ::close(client);
    ::close(fd_);
  }
  FullNode(const FullNode&) = delete;
  FullNode& operator=(const FullNode&) = delete;
  int port() const { return port_; }

 private:
  int fd_, port_ = 0;
  std::array<int, 4> clients_{};
};

// A rack without power: each of its nodes would take all of the limit, one after the other.
TEST(NodeCheck, NodesAreAskedTogetherWithinOneLimit) {
  const FullNode full;
  const testing::ListeningSocket listens;
  std::vector<::slurm::Node> nodes(10);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].name = "node" + std::to_string(i);
    nodes[i].address = "127.0.0.1";
    nodes[i].states = {"IDLE"};
    nodes[i].fields["Port"] = std::to_string(i == 9 ? listens.port() : full.port());
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto answers = ask(nodes, "", 700ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s) << "ten times the limit would be 7 s";
  ASSERT_EQ(answers.size(), 10U);
  for (const auto& [name, there] : answers) EXPECT_EQ(there, name == "node9") << name;
}

TEST(NodeCheck, WithoutADescriptorANodeIsNotAskedAndNothingIsKnownOfIt) {
  const testing::ListeningSocket listens;
  ::slurm::Node node;
  node.name = "node1";
  node.address = "127.0.0.1";
  node.states = {"IDLE"};
  const auto port = std::to_string(listens.port());
  {
    const test::NoDescriptors left;
    EXPECT_THAT(ask({node}, port, 1s), IsEmpty());
  }
  EXPECT_TRUE(answers(node, port, 1s));
}

TEST(NodeCheck, ANodeIsFoundByItsNameAndOneWithoutAnAddressDoesNotAnswer) {
  const testing::ListeningSocket listens;
  ::slurm::Node node;
  node.name = "localhost";
  node.states = {"IDLE"};
  EXPECT_TRUE(answers(node, std::to_string(listens.port()), 5s));
  node.name = "no such name";
  EXPECT_FALSE(answers(node, std::to_string(listens.port()), 5s));
}

}  // namespace
}  // namespace executors::on_slurm
