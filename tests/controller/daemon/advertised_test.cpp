// Goal: an address at which ranks cannot find musterd is told at the start, with what to do.
// Method: a name service and a clock in the hands of the test; the real one is asked for names that are none.
#include "daemon/advertised.h"

#include <gmock/gmock.h>

#include <map>

#include "base/clock.h"
#include "daemon/usage_error.h"

namespace musterd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class AdvertisedTest : public testing::Test {
 protected:
  base::ManualClock clock_;
  std::map<std::string, std::string> unknown_{{"head9", "Name or service not known"}};
  int asked_ = 0;
  Advertised advertised_{clock_, [this](const std::string& host) {
                           ++asked_;
                           const auto found = unknown_.find(host);
                           return found == unknown_.end() ? std::string() : found->second;
                         }};
};

TEST_F(AdvertisedTest, ANameThatNobodyKnowsIsToldWithTheRemedy) {
  advertised_.set("head9:7600");
  EXPECT_THAT(advertised_.problem(), AllOf(HasSubstr("head9:7600"), HasSubstr("Name or service not known"),
                                           HasSubstr("--advertise HOST:PORT")));
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
  unknown_.clear();
  EXPECT_NE(advertised_.problem(), "") << "not at once: each page of a job would ask";
  EXPECT_EQ(asked_, 1);
  clock_.advance(Advertised::kAgain);
  EXPECT_EQ(advertised_.problem(), "");
}

TEST_F(AdvertisedTest, WhatIsNoAddressIsAMistakeInTheFlags) {
  for (const char* text : {"head9", "head9:0", ":7600", "head9:port"}) {
    EXPECT_THROW(advertised_.set(text), UsageError) << text;
  }
}

TEST(Advertised, TheNameServiceKnowsNoSuchName) {
  EXPECT_NE(Advertised::ask_name_service("no-such-host.invalid"), "");
  EXPECT_EQ(Advertised::ask_name_service("127.0.0.1"), "");
  EXPECT_EQ(Advertised::ask_name_service("localhost"), "");
}

}  // namespace
}  // namespace musterd
