// Goal: muster admin says what is wrong with a command line before anybody is asked.
// Method: the real program; where a controller would be asked, there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_controller.h"

namespace test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Finished muster(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), MUSTER_PROGRAM);
  return run(arguments, {{"MUSTER_ADDRESS", "127.0.0.1:1"}, {"MUSTER_TOKEN", "x"}}, 20s);
}

struct Slip {
  std::vector<std::string> arguments;
  std::string says;
};

TEST(Admin, SaysWhatIsWrongAndWhatToTry) {
  for (const auto& [arguments, says] : {
           Slip{{"admin"}, "muster admin: want one of partition, audit; see muster admin --help"},
           Slip{{"admin", "partition"}, "want one of add, set, remove, list"},
           Slip{{"admin", "partition", "sett", "main"}, "there is no command \"sett\", did you mean set"},
           Slip{{"admin", "partition", "add"}, "want PARTITION; see muster admin partition add --help"},
           Slip{{"admin", "partition", "add", "main", "--max-node", "2"}, "did you mean --max-nodes"},
       }) {
    const auto done = muster(arguments);
    EXPECT_EQ(done.exit, 2);
    EXPECT_THAT(done.err, HasSubstr(says));
  }
}

TEST(Admin, RefusesValuesThatMakeNoSenseBeforeItAsks) {
  FakeController fake;
  for (const auto& [arguments, says] : {
           Slip{{"--max-nodes", "0"}, "--max-nodes \"0\": want a whole number from 1 to 1000000, or none"},
           Slip{{"--max-time", "90"}, "--max-time \"90\": want a duration such as 12h"},
           Slip{{"--preemptible", "yes"}, "want true or false, or none"},
           Slip{{"--users", "ann,,bob"}, "want names such as"},
           Slip{{"--max-nodes", "1", "--max-nodes", "2"}, "want one value"},
           Slip{{}, "want something to change, such as --max-nodes 4"},
       }) {
    std::vector<std::string> line{"admin", "partition", "set", "main"};
    line.insert(line.end(), arguments.begin(), arguments.end());
    const auto done = fake.muster(line);
    EXPECT_EQ(done.exit, 2) << says;
    EXPECT_THAT(done.err, HasSubstr(says));
  }
}

TEST(Admin, HelpAndCompletionKnowEveryKey) {
  EXPECT_THAT(muster({"admin", "partition", "add", "--help"}).out,
              AllOf(HasSubstr("--requeue-max-preempted N"), HasSubstr("--preemptible {true,false}"),
                    HasSubstr("The holder of the token is trusted")));
  EXPECT_THAT(muster({"completion", "bash"}).out,
              AllOf(HasSubstr("--max-running-jobs-per-user"), HasSubstr("partition add set remove list audit")));
}

}  // namespace
}  // namespace test
