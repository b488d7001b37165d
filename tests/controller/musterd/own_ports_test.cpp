// Goal: many users of a machine find free ports at once, and each finds its own again.
#include "controller/musterd/own_ports.h"

#include <gmock/gmock.h>

#include <memory>
#include <set>

#include "base/durable_file.h"
#include "base/usage_error.h"
#include "tests/temporary_folder.h"

namespace musterd {
namespace {

using ::testing::HasSubstr;

struct FakeServer {
  int number = 0;
  int port() const { return number; }
};

/// Ports of which some are taken by others.
struct Machine {
  std::set<int> taken = {};
  std::vector<int> tried = {};

  std::unique_ptr<FakeServer> serve(const std::string& address) {
    const int port = std::stoi(address.substr(address.rfind(':') + 1));
    tried.push_back(port);
    if (taken.contains(port)) throw std::runtime_error("cannot listen on " + address);
    return std::make_unique<FakeServer>(FakeServer{port});
  }
};

PortChoice any_of(std::uint16_t low, std::uint16_t high) {
  return {{.host = "127.0.0.1", .port = 0}, true, {low, high}};
}

std::uint16_t start(const std::filesystem::path& file, Machine& machine, PortChoice choice) {
  RememberedPorts ports(file);
  ports.serve("grpc", choice, [&](const std::string& address) { return machine.serve(address); });
  ports.save();
  return choice.address.port;
}

TEST(OwnPorts, TheSamePortIsTakenAgainAndAnotherOneWhereItIsGone) {
  test::TemporaryFolder folder;
  const auto file = folder.path() / "ports.json";
  Machine machine;
  const auto first = start(file, machine, any_of(20000, 29999));
  EXPECT_EQ(start(file, machine, any_of(20000, 29999)), first);
  EXPECT_EQ(start(file, machine, any_of(30000, 30009)), first) << "ranks know no other one, whatever the range is";
  machine.taken = {first};
  const auto other = start(file, machine, any_of(20000, 29999));
  EXPECT_NE(other, first);
  machine.taken.clear();
  EXPECT_EQ(start(file, machine, any_of(20000, 29999)), other);
}

TEST(OwnPorts, UsersBeginAtPlacesOfTheirOwn) {
  const PortRange range{20000, 29999};
  std::set<std::uint16_t> first;
  for (std::uint32_t user = 1000; user < 1100; ++user) {
    for (const std::uint32_t part : {0U, 1U}) first.insert(range.in_order(user, part).front());
  }
  EXPECT_EQ(first.size(), 200U);
  EXPECT_EQ(range.in_order(1000, 0).size(), PortRange::kMostTries);
  EXPECT_EQ((PortRange{7, 9}.in_order(1, 0)), (std::vector<std::uint16_t>{9, 7, 8})) << "each once";
}

TEST(OwnPorts, ARangeWithoutAFreePortIsToldByTheLastTry) {
  test::TemporaryFolder folder;
  Machine machine{.taken = {7, 8, 9}};
  EXPECT_THROW(start(folder.path() / "ports.json", machine, any_of(7, 9)), std::runtime_error);
  EXPECT_EQ(machine.tried.size(), 3U);
}

TEST(OwnPorts, ARangeIsTwoPorts) {
  EXPECT_EQ(parse_port_range("--ports", "7-9").high, 9);
  EXPECT_EQ(parse_port_range("--ports", "7").low, 7);
  for (const char* wrong : {"", "-", "9-7", "0-9", "1-65536", "a-b", "1-2-3"}) {
    try {
      parse_port_range("--ports", wrong);
      ADD_FAILURE() << wrong;
    } catch (const base::UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("--ports \"" + std::string(wrong) + "\": want LOW-HIGH such as 20000-29999"));
    }
  }
}

}  // namespace
}  // namespace musterd
