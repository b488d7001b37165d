#include "cli/user_service.h"

#include <gmock/gmock.h>

namespace cli {
namespace {

using ::testing::HasSubstr;

TEST(UserService, WordsOfAUnitKeepTheirMeaning) {
  const auto text =
      UserService::unit_text({"/opt/a b/musterd", "--x", "50%", "$HOME\\\"q\""}, "/d%1/log", {{"PATH", "/a$b:/c%d"}});
  EXPECT_THAT(text, HasSubstr(R"(ExecStart="/opt/a b/musterd" "--x" "50%%" "$$HOME\\\"q\"")"
                              "\n"));
  EXPECT_THAT(text, HasSubstr("Environment=\"PATH=/a$b:/c%%d\"\n")) << "only a command has variables";
  EXPECT_THAT(text, HasSubstr("StandardError=append:/d%%1/log\n"));
  EXPECT_THAT(text, HasSubstr("KillMode=process\n")) << "the agents of running jobs outlive musterd";
}

}  // namespace
}  // namespace cli
