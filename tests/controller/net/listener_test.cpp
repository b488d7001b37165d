// Goal: a port stays open after errors, without descriptors and in a crowd of connections.
// Method: a real listener on loopback; the test breaks its socket and takes all descriptors.
#include "controller/net/listener.h"

#include <dirent.h>
#include <fcntl.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "controller/net/gate.h"
#include "tests/controller/net/loopback.h"
#include "tests/no_descriptors.h"

namespace net {
namespace {

using namespace std::chrono_literals;
using testing::client_of;
using testing::Socket;

/// A door that keeps the listener's sockets. It reads, sends nothing, and closes ended connections.
class Taken final : public Door {
 public:
  ~Taken() override {
    ending_ = true;
    thread_.join();
  }
  void enter(int socket, Time) override {
    const std::lock_guard lock(mutex_);
    sockets_.emplace_back(socket);
    ++count_;
  }
  void tidy(Time) override {}
  bool has_to_tidy() const override { return false; }
  int events() const override { return -1; }
  void work(Time) override {}
  bool becomes(std::size_t count) const {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (count_ < count && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(2ms);
    return count_ >= count;
  }
  std::size_t count() const { return count_; }

 private:
  void serve() {
    while (!ending_) {
      std::this_thread::sleep_for(1ms);
      const std::lock_guard lock(mutex_);
      std::erase_if(sockets_, [](const Socket& socket) {
        char buffer[256];
        return ::recv(socket.get(), buffer, sizeof buffer, MSG_DONTWAIT) == 0;
      });
    }
  }

  std::mutex mutex_;
  std::vector<Socket> sockets_;
  std::atomic<std::size_t> count_ = 0;  // since the start
  std::atomic<bool> ending_ = false;
  std::thread thread_{[this] { serve(); }};
};

/// Finds this process's listening socket on `port`.
int listening_socket(int port) {
  for (int fd = 3; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    if (testing::port_of(fd) == port) return fd;
  }
  return -1;
}

struct Opened {
  Opened() { listener.start(); }
  ~Opened() { listener.stop(); }
  std::shared_ptr<Taken> door = std::make_shared<Taken>();
  Taken& taken = *door;
  Listener listener{"127.0.0.1:0", door};
};

TEST(Listener, HandsOnWhoConnects) {
  Opened port;
  const auto client = client_of(port.listener.port());
  EXPECT_TRUE(port.taken.becomes(1));
}

TEST(Listener, GoesOnWhenItsSocketBreaks) {
  Opened port;
  // From now on every accept() on this socket fails.
  ::shutdown(listening_socket(port.listener.port()), SHUT_RDWR);
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (listening_socket(port.listener.port()) < 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(2ms);
  }
  const auto client = client_of(port.listener.port(), "hello");
  EXPECT_TRUE(port.taken.becomes(1));
}

TEST(Listener, IsOpenedAnewWhenAsked) {
  Opened port;
  port.listener.reopen();
  // A client is refused while the port is closed.
  const auto to = testing::loopback(port.listener.port());
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (port.taken.count() == 0 && std::chrono::steady_clock::now() < until) {
    const Socket client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const bool connected = ::connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
    if (connected) ::send(client.get(), "hello", 5, MSG_NOSIGNAL);
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_GT(port.taken.count(), 0U);
}

TEST(Listener, OutOfDescriptorsItTurnsAwayAtOnceAndGoesOnWhenThereAreSome) {
  Opened port;
  const auto first = client_of(port.listener.port(), "hello");
  ASSERT_TRUE(port.taken.becomes(1));
  Socket client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    const test::NoDescriptors left;
    const auto to = testing::loopback(port.listener.port());
    ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    ASSERT_EQ(::send(client.get(), "hello", 5, MSG_NOSIGNAL), 5);
    EXPECT_TRUE(client.is_ended()) << "told at once, with the descriptor that is kept for it";
  }
  const auto later = client_of(port.listener.port(), "hello");
  EXPECT_TRUE(port.taken.becomes(2));
}

TEST(Listener, NamesTheAddressAndTheRemedy) {
  const auto door = std::make_shared<Taken>();
  const auto refusal = [&](const std::string& address) -> std::string {
    try {
      const Listener listener(address, door);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  const Listener first("127.0.0.1:0", door);
  const auto address = "127.0.0.1:" + std::to_string(first.port());
  EXPECT_EQ(refusal(address), "cannot listen on " + address +
                                  ": the address is in use: stop the process that listens there (another musterd?) or "
                                  "choose another port");
  EXPECT_EQ(refusal("192.0.2.1:0"),
            "cannot listen on 192.0.2.1:0: no such address on this machine: listen on 127.0.0.1 or on one that `ip "
            "address` shows");
  EXPECT_EQ(refusal("nonsense"), "cannot listen on nonsense: want host:port such as 127.0.0.1:7000");
}

}  // namespace
}  // namespace net
