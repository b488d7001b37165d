#include "cli/cli_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/client.h"
#include "tests/held_lock.h"
#include "tests/system/process.h"

namespace cli {
namespace {

using ::testing::HasSubstr;

/// The three configuration files and the environment of one test.
struct Places {
  test::TemporaryFolder folder;
  std::map<std::string, std::string> variables{{"HOME", "/home/ada"}};

  void write(const std::string& name, const std::string& text) { test::write_file(folder.path() / name, text); }
  Config load(const Flags& flags = {}) const {
    ConfigPlaces places;
    for (const char* name : {"here.toml", "user.toml", "system.toml"}) places.files.push_back(folder.path() / name);
    places.variable = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end() || found->second.empty()) return std::nullopt;
      return found->second;
    };
    return load_config(flags, places);
  }
  std::string refusal() const {
    try {
      load();
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.exit(), kUsage);
      return failure.what();
    }
    return "";
  }
};

TEST(Configuration, WithoutAnyTheDefaultsHold) {
  Places places;
  const auto config = places.load();
  EXPECT_EQ(config.address.value, "127.0.0.1:7600");
  EXPECT_EQ(config.token_file.value, "/home/ada/.local/share/muster/token");
  EXPECT_FALSE(config.token);
  places.variables["XDG_DATA_HOME"] = "/data/ada";
  EXPECT_EQ(places.load().token_file.value, "/data/ada/muster/token") << "where musterd keeps it then";
  places.variables["MUSTER_DATA_FOLDER"] = "/srv/muster";
  EXPECT_EQ(places.load().token_file.value, "/srv/muster/token");
}

TEST(Configuration, NobodyIsAskedAtAnAddressThatNobodyNamedWhileNoMusterdRuns) {
  Places places;
  EXPECT_TRUE(places.load().is_absent)
      << "another user's program may listen at 127.0.0.1:7600, and would get the token";
  EXPECT_FALSE(places.load({"127.0.0.1:7600", {}}).is_absent);
  EXPECT_FALSE(places.load({{}, "/srv/token"}).is_absent) << "a controller of somebody else, who gave the token";
  places.variables["MUSTER_TOKEN"] = "secret";
  EXPECT_FALSE(places.load().is_absent);
  places.variables.erase("MUSTER_TOKEN");
  places.write("system.toml", "address = \"system:1\"");
  EXPECT_FALSE(places.load().is_absent);
}

TEST(Configuration, ADataFolderTellsItsAddressBesideItsToken) {
  Places places;
  const auto data = places.folder.path() / "data";
  std::filesystem::create_directories(data);
  auto lock = test::hold_lock(data);
  const auto write = [&](std::int64_t pid, const std::string& grpc) {
    test::write_file(data / "musterd.json", R"({"pid":)" + std::to_string(pid) + R"(,"grpc":")" + grpc + R"("})");
  };
  write(::getpid(), "0.0.0.0:41234");
  places.variables["MUSTER_DATA_FOLDER"] = data;
  auto config = places.load();
  EXPECT_EQ(config.address.value, "127.0.0.1:41234") << "whoever listens everywhere is reached here";
  EXPECT_EQ(config.address.source, (data / "musterd.json").native());
  EXPECT_EQ(config.token_file.value, (data / "token").native());
  EXPECT_EQ(config.doubt, "");
  EXPECT_FALSE(config.is_absent);
  places.write("here.toml", "address = \"here:1\"");
  EXPECT_EQ(places.load().address.value, "127.0.0.1:41234") << "a variable is stronger than a file";
  places.variables["MUSTER_ADDRESS"] = "variable:1";
  EXPECT_EQ(places.load().address.value, "variable:1");
  EXPECT_EQ(places.load({"flag:1", {}}).address.value, "flag:1");
  places.variables["MUSTER_ADDRESS"] = "";

  // A child that was waited for has certainly ended.
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  ::waitpid(gone, nullptr, 0);
  write(gone, "127.0.0.1:41234");
  EXPECT_EQ(places.load().doubt, "the musterd of " + data.native() + " (another process) is starting or ending");
  lock.reset();
  EXPECT_EQ(places.load().doubt,
            (data / "musterd.json").native() + " was left by process " + std::to_string(gone) + ", which has ended");
  EXPECT_TRUE(places.load().is_absent);
  write(::getpid(), "127.0.0.1:41234");
  EXPECT_TRUE(places.load().is_absent) << "a process that has the number by now holds no lock";
  std::filesystem::remove(data / "musterd.json");
  config = places.load();
  EXPECT_EQ(config.address.value, "here:1");
  EXPECT_THAT(config.doubt, HasSubstr("there is no " + data.native() + "/musterd.json, so no musterd runs"));
}

TEST(Configuration, ARankFindsTheControllerOfItsJob) {
  Places places;
  const auto data = places.folder.path() / "jobs" / "data";  // the name of the folder of jobs may be above it, too
  std::filesystem::create_directories(data);
  const auto write = [&](const std::string& host) {
    test::write_file(data / "musterd.json", R"({"pid":)" + std::to_string(::getpid()) + R"(,"host":")" + host +
                                                R"(","grpc":"127.0.0.1:41234"})");
  };
  char own[256] = {};
  ASSERT_EQ(gethostname(own, sizeof own - 1), 0);
  write(own);
  places.write("here.toml", "address = \"here:1\"");
  places.variables["MUSTER_ATTEMPT_FOLDER"] = data / "jobs/7/attempt-2";
  places.variables["MUSTER_CONTROLLER"] = "head1:7600";
  EXPECT_EQ(places.load().address.value, "here:1") << "a folder without a token is nobody's";
  test::write_file(data / "token", "secret\n");
  auto config = places.load();
  EXPECT_EQ(config.address.value, "127.0.0.1:41234")
      << "stronger than a file, and true after musterd has changed its port";
  EXPECT_EQ(config.token_file.value, (data / "token").native());
  EXPECT_EQ(config.data_folder, data);
  write("not-this-machine");
  EXPECT_EQ(places.load().address.value, "head1:7600") << "the address for other machines";
  test::write_file(data / "musterd.json",
                   R"({"pid":1,"host":"not-this-machine","grpc":"0.0.0.0:1","advertised":"10.0.0.7:1"})");
  EXPECT_EQ(places.load().address.value, "10.0.0.7:1") << "it has moved since the rank was started";
  EXPECT_EQ(places.load().token_file.value, (data / "token").native());
  places.variables["MUSTER_ADDRESS"] = "variable:1";
  EXPECT_EQ(places.load().address.value, "variable:1");
  places.variables.erase("MUSTER_ADDRESS");
  places.variables["MUSTER_DATA_FOLDER"] = "/srv/muster";
  EXPECT_EQ(places.load().token_file.value, "/srv/muster/token") << "what a person names is stronger";
}

TEST(Configuration, ADataFolderThatAnotherHostsMusterdHoldsIsSaidToBeSo) {
  Places places;
  const auto file = places.folder.path() / "musterd.json";
  places.variables["MUSTER_DATA_FOLDER"] = places.folder.path();
  const auto lock = test::hold_lock(places.folder.path());
  test::write_file(file, R"({"pid":1,"host":"not-this-machine","grpc":"127.0.0.1:41234"})");
  EXPECT_THAT(places.load().doubt,
              HasSubstr(file.native() + " belongs to a musterd on host not-this-machine, and this is "));
  char own[256] = {};
  ASSERT_EQ(gethostname(own, sizeof own - 1), 0);
  test::write_file(file, R"({"pid":1,"host":")" + std::string(own) + R"(","grpc":"127.0.0.1:41234"})");
  EXPECT_EQ(places.load().doubt, "");
  test::write_file(file, R"({"pid":1,"host":"not-this-machine","grpc":"0.0.0.0:41234"})");
  EXPECT_EQ(places.load().address.value, "not-this-machine:41234") << "whoever listens everywhere is reached there";
  EXPECT_FALSE(places.load().is_absent);
  test::write_file(file, R"({"pid":1,"host":"not-this-machine","grpc":"0.0.0.0:41234","advertised":"10.0.0.7:41234"})");
  EXPECT_EQ(places.load().address.value, "10.0.0.7:41234") << "its name may be unknown here";
  test::write_file(file, R"({"pid":1,"host":"not-this-machine","grpc":"127.0.0.1:41234"})");
  EXPECT_TRUE(places.load().is_absent) << "that port of this machine may be anybody's";
}

TEST(Configuration, TheDefaultDataFolderIsTheWeakestPlaceForAnAddress) {
  Places places;
  const auto data = places.folder.path() / "muster";
  std::filesystem::create_directories(data);
  test::write_file(data / "musterd.json", R"({"pid":1,"grpc":"127.0.0.1:41234"})");
  places.variables["XDG_DATA_HOME"] = places.folder.path();
  EXPECT_EQ(places.load().address.value, "127.0.0.1:41234");
  places.write("system.toml", "address = \"system:1\"");
  EXPECT_EQ(places.load().address.value, "system:1");
  for (const char* nonsense : {"", "[]", "{\"grpc\":7}", "{\"grpc\":"}) {
    test::write_file(data / "musterd.json", nonsense);
    EXPECT_EQ(places.load().address.value, "system:1");
  }
}

TEST(Configuration, AnAddressIsAHostAndAPort) {
  Places places;
  for (const char* fine : {"127.0.0.1:7600", "[::1]:7600", "node7.cluster:1", "unix:/run/muster.sock"}) {
    places.variables["MUSTER_ADDRESS"] = fine;
    EXPECT_EQ(places.refusal(), "") << fine;
  }
  for (const char* wrong : {"localhost", "localhost:", "localhost:http", "localhost:70000", ":7600", "host:7600/"}) {
    places.variables["MUSTER_ADDRESS"] = wrong;
    EXPECT_EQ(places.refusal(), std::string("MUSTER_ADDRESS \"") + wrong + "\": want host:port such as 127.0.0.1:7600");
  }
}

TEST(Configuration, EachPlaceIsStrongerThanTheNext) {
  Places places;
  places.write("system.toml", "address = \"system:1\"\ntoken_file = \"/system/token\"");
  EXPECT_EQ(places.load().address.value, "system:1");
  places.write("user.toml", "address = \"user:1\"");
  EXPECT_EQ(places.load().address.value, "user:1");
  EXPECT_EQ(places.load().token_file.value, "/system/token") << "each key for itself";
  places.write("here.toml", "address = \"here:1\"\ntoken_file = \"secret/token\"");
  EXPECT_EQ(places.load().address.value, "here:1");
  EXPECT_EQ(places.load().token_file.value, (places.folder.path() / "secret/token").native());
  places.variables["MUSTER_ADDRESS"] = "variable:1";
  places.variables["MUSTER_TOKEN_FILE"] = "/variable/token";
  EXPECT_EQ(places.load().address.value, "variable:1");
  EXPECT_EQ(places.load().address.source, "MUSTER_ADDRESS");
  EXPECT_EQ(places.load().token_file.value, "/variable/token");
  places.variables["MUSTER_TOKEN"] = "t";
  EXPECT_EQ(places.load().token, "t");
  const auto config = places.load({"flag:1", "~/token"});
  EXPECT_EQ(config.address.value, "flag:1");
  EXPECT_EQ(config.token_file.value, "/home/ada/token");
  EXPECT_FALSE(config.token) << "a flag is stronger than a variable";
  places.variables["MUSTER_ADDRESS"] = "";
  EXPECT_EQ(places.load().address.value, "here:1") << "an empty variable is none";
}

TEST(Configuration, TheUsualPlacesAreTheFolderThePersonAndTheMachine) {
  ::setenv("HOME", "/home/ada", 1);
  ::setenv("MUSTER_ADDRESS", "variable:1", 1);
  ::setenv("MUSTER_TOKEN", "", 1);
  const auto places = usual_places();
  ::unsetenv("MUSTER_ADDRESS");
  ::unsetenv("MUSTER_TOKEN");
  EXPECT_EQ(places.files, (std::vector<std::filesystem::path>{"muster.toml", "/home/ada/.config/muster/config.toml",
                                                              "/etc/muster/config.toml"}));
  EXPECT_EQ(places.variable("HOME"), "/home/ada");
}

TEST(Configuration, AFaultyFileIsRefusedWithItsPlaceEvenWhereAStrongerOneHidesIt) {
  Places places;
  places.variables["MUSTER_ADDRESS"] = "variable:1";
  places.write("user.toml", "adress = \"x:1\"");
  EXPECT_THAT(places.refusal(), HasSubstr("user.toml:1:1: adress: unknown key, did you mean address"));
  places.write("user.toml", "\n[train]\nsteps = 5");
  EXPECT_THAT(places.refusal(), HasSubstr("user.toml:2:2: train: unknown key, want address or token_file"));
  places.write("user.toml", "http_address = \"x:1\"");
  EXPECT_EQ(places.load().address.value, "variable:1") << "the Python client reads this key";
  places.write("user.toml", "address = 7600");
  EXPECT_THAT(places.refusal(), HasSubstr("user.toml:1:11: address \"7600\": want a text in quotes"));
  places.write("user.toml", "address = ");
  EXPECT_THAT(places.refusal(), HasSubstr("user.toml:1:"));
  places.write("user.toml", std::string(100'000, 'x'));
  EXPECT_THAT(places.refusal(), HasSubstr("larger than 64 KiB"));
}

TEST(Configuration, LoopbackIsKnown) {
  for (const char* own : {"127.0.0.1:7600", "localhost:1", "[::1]:7600", "127.1.2.3:5"}) EXPECT_TRUE(is_loopback(own));
  for (const char* other : {"10.0.0.1:7600", "login:7600", "localhost.example.org:1"}) EXPECT_FALSE(is_loopback(other));
}

}  // namespace
}  // namespace cli
