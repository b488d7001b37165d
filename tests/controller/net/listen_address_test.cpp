#include "controller/net/address.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace net {
namespace {

TEST(ListenAddress, IsReadStrictly) {
  EXPECT_EQ(parse_listen_address("127.0.0.1:7600").port, 7600);
  EXPECT_EQ(parse_listen_address("[::1]:0").text(), "[::1]:0");
  for (const char* bad :
       {"", ":", "7600", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:1x", "::1:5", "[]:5"}) {
    EXPECT_THROW(parse_listen_address(bad), std::invalid_argument) << bad;
  }
  for (const char* loopback : {"127.0.0.1:1", "127.5.5.5:1", "[::1]:1", "localhost:1"}) {
    EXPECT_TRUE(parse_listen_address(loopback).is_loopback()) << loopback;
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1", "127.0.0.1.example.org:1"}) {
    EXPECT_FALSE(parse_listen_address(open).is_loopback()) << open;
  }
}

}  // namespace
}  // namespace net
