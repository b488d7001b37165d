// Goal: an address at which ranks cannot find musterd is told at the start, with what to do.
// Method: a name service and a clock in the hands of the test; the real one is asked for names that are none.
#include "controller/musterd/advertised.h"

#include <gmock/gmock.h>

#include <map>

#include "base/usage_error.h"
#include "controller/common/clock.h"
#include "tests/manual_clock.h"

namespace musterd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class AdvertisedTest : public testing::Test {
 protected:
  common::ManualClock clock_;
  using Kind = NameAnswer::Kind;
  std::map<std::string, NameAnswer> answers_{{"head9", {Kind::kUnknown, "Name or service not known"}},
                                             {"head8", {Kind::kNone, "Temporary failure in name resolution"}},
                                             {"head7", {Kind::kThisMachineAlone, "127.0.1.1"}}};
  int asked_ = 0;
  Advertised advertised_{clock_, [this](const std::string& host) {
                           ++asked_;
                           const auto found = answers_.find(host);
                           return found == answers_.end() ? NameAnswer{} : found->second;
                         }};
};

TEST_F(AdvertisedTest, ANameThatNobodyKnowsIsToldWithTheRemedy) {
  advertised_.set("head9:7600");
  EXPECT_THAT(advertised_.problem(), AllOf(HasSubstr("head9:7600"), HasSubstr("Name or service not known"),
                                           HasSubstr("--advertise HOST:PORT")));
}

TEST_F(AdvertisedTest, ANameServiceThatDoesNotAnswerIsToldAndAskedAgain) {
  advertised_.set("head8:7600");
  EXPECT_THAT(advertised_.problem(),
              AllOf(HasSubstr("head8:7600"), HasSubstr("does not answer for \"head8\" (Temporary failure"),
                    HasSubstr("not known"), HasSubstr("--advertise HOST:PORT")));
  EXPECT_EQ(advertised_.problem_or_doubt(), advertised_.problem());
  answers_.clear();
  clock_.advance(Advertised::kAgain);
  EXPECT_EQ(advertised_.problem(), "");
}

TEST_F(AdvertisedTest, ANameThatIsThisMachineAloneIsADoubtSinceNodesMayKnowItOtherwise) {
  advertised_.set("head7:7600");
  EXPECT_EQ(advertised_.problem(), "");
  EXPECT_THAT(advertised_.doubt(),
              AllOf(HasSubstr("\"head7\" is 127.0.1.1, which no other machine reaches"), HasSubstr("/etc/hosts"),
                    HasSubstr("getent hosts head7"), HasSubstr("--advertise HOST:PORT")));
  EXPECT_EQ(advertised_.problem_or_doubt(), advertised_.doubt());
}

TEST_F(AdvertisedTest, AKnownNameIsNoProblemAndSoIsNoAddressYet) {
  EXPECT_EQ(advertised_.problem(), "");
  advertised_.set("head1:7600");
  EXPECT_EQ(advertised_.problem(), "");
  EXPECT_EQ(advertised_.address(), "head1:7600");
}

TEST_F(AdvertisedTest, ANameIsAskedForAgainSinceItMayBecomeKnown) {
  advertised_.set("head9:7600");
  EXPECT_NE(advertised_.problem(), "");
  answers_.clear();
  EXPECT_NE(advertised_.problem(), "") << "not at once: each page of a job would ask";
  EXPECT_EQ(asked_, 1);
  clock_.advance(Advertised::kAgain);
  EXPECT_EQ(advertised_.problem(), "");
}

TEST_F(AdvertisedTest, WhatIsNoAddressIsAMistakeInTheFlags) {
  for (const char* text : {"head9", "head9:0", ":7600", "head9:port"}) {
    EXPECT_THROW(advertised_.set(text), base::UsageError) << text;
  }
}

TEST(Advertised, TheNameServiceKnowsNoSuchName) {
  using Kind = NameAnswer::Kind;
  EXPECT_NE(Advertised::ask_name_service("no-such-host.invalid").kind, Kind::kKnown);
  EXPECT_NE(Advertised::ask_name_service("no-such-host.invalid").detail, "");
  for (const char* meant : {"127.0.0.1", "127.0.1.1", "::1", "localhost", "192.0.2.7"}) {
    EXPECT_EQ(Advertised::ask_name_service(meant).kind, Kind::kKnown) << meant;
  }
  // A name of the loopback address that is not "localhost", as Debian's machines have one; if there is one here.
  const auto alias = Advertised::ask_name_service("ip6-localhost");
  if (alias.kind == Kind::kThisMachineAlone) {
    EXPECT_EQ(alias.detail, "::1");
  }
}

}  // namespace
}  // namespace musterd
