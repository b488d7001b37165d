#include "runtime/slurm/node_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "slurm/listening_socket.h"

namespace runtime::on_slurm {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Word = NodeCheck::Word;

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
  EXPECT_EQ(check.word("node1", 1999ms), Word::kAsking);
  EXPECT_EQ(check.word("node1", 2000ms), Word::kSilent);
  check.answered("node1", true, 2500ms);
  EXPECT_EQ(check.word("node1", 2600ms), Word::kAnswers) << "late, and yet an answer";
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

}  // namespace
}  // namespace runtime::on_slurm
