#include "controller/executors/local/start.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <set>
#include <system_error>

#include "base/fd.h"

namespace executors::local {
namespace {

base::Fd listen_on(std::uint16_t port) {
  base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(socket.get(), 1), 0);
  return socket;
}

TEST(PortPicker, StaysOutsideTheEphemeralRange) {
  PortPicker below(12345, {32768, 60999});
  PortPicker above(12345, {1024, 60999});
  for (int i = 0; i < 100; ++i) {
    const auto low = below.take({1, 1});
    EXPECT_GE(low, 10000);
    EXPECT_LT(low, 32768);
    EXPECT_GT(above.take({1, 1}), 60999);
  }
}

TEST(PortPicker, UsesWhatThereIsWhenEverythingIsEphemeral) {
  EXPECT_NE(PortPicker(1, {1024, 65535}).take({1, 1}), 0);
}

TEST(PortPicker, NeverGivesOneTwice) {
  PortPicker picker(0);
  std::set<std::uint16_t> taken;
  for (core::JobId job = 1; job <= 200; ++job) EXPECT_TRUE(taken.insert(picker.take({job, 1})).second);
}

TEST(PortPicker, DoesNotGiveAPortBackAtOnce) {
  PortPicker picker(7);
  const auto first = picker.take({1, 1});
  picker.give_back({1, 1});
  EXPECT_NE(picker.take({2, 1}), first);
}

// Or sixty thousand ports would be called taken.
TEST(PortPicker, WithoutADescriptorToLookWithItSaysSo) {
  PortPicker picker(5);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  int error = 0;
  try {
    picker.take({1, 1});
  } catch (const std::system_error& failed) {
    error = failed.code().value();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(error, EMFILE);
  EXPECT_NE(picker.take({1, 1}), 0);
}

TEST(PortPicker, SkipsWhatAnEarlierControllerGaveAndWhatSomebodyListensOn) {
  const auto first = PortPicker(99).take({1, 1});
  const auto busy = listen_on(first);
  PortPicker same_beginning(99);
  same_beginning.keep({1, 1}, static_cast<std::uint16_t>(first + 1));
  const auto next = same_beginning.take({2, 1});
  EXPECT_NE(next, first);
  EXPECT_NE(next, first + 1);
}

}  // namespace
}  // namespace executors::local
