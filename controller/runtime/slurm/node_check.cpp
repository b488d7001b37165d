#include "runtime/slurm/node_check.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>

namespace runtime::on_slurm {
namespace {

/// Of a slurm.conf that says nothing.
constexpr const char* kSlurmdPort = "6818";

bool is_up(const ::slurm::Node& node) {
  constexpr const char* kGone[] = {"DOWN", "FAIL", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED", "UNKNOWN"};
  return node.responds && std::ranges::none_of(node.states, [&](const std::string& state) {
           return std::ranges::find(kGone, state) != std::end(kGone);
         });
}

/// Whether a connection is made within the limit.
bool takes_connection(const addrinfo& to, core::Millis limit) {
  const int fd = ::socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol);
  if (fd < 0) return false;
  int error = ::connect(fd, to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  pollfd waits{fd, POLLOUT, 0};
  if (error == EINPROGRESS && ::poll(&waits, 1, static_cast<int>(limit.count())) == 1) {
    socklen_t size = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  ::close(fd);
  return error == 0;
}

}  // namespace

NodeCheck::Word NodeCheck::word(const std::string& name, core::Millis now) {
  auto& node = nodes_.try_emplace(name, Node{now, std::nullopt}).first->second;
  if (node.answered_at && now - *node.answered_at >= (node.is_told ? kFresh : kKept)) node = {now, std::nullopt};
  if (node.answered_at) {
    node.is_told = true;
    return node.answers ? Word::kAnswers : Word::kSilent;
  }
  return now - node.asked_at < kPatience ? Word::kAsking : Word::kSilent;
}

std::vector<std::string> NodeCheck::wanted() const {
  std::vector<std::string> names;
  for (const auto& [name, node] : nodes_) {
    if (!node.answered_at) names.push_back(name);
  }
  return names;
}

void NodeCheck::answered(const std::string& name, bool answers, core::Millis now) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return;
  found->second.answered_at = now;
  found->second.answers = answers;
}

void NodeCheck::forget_old(core::Millis now) {
  std::erase_if(nodes_, [&](const auto& entry) { return now - entry.second.asked_at >= kForgottenAfter; });
}

std::vector<std::string> ports_of(const ::slurm::Node& node, const std::string& slurmd_port) {
  constexpr unsigned kMostPorts = 16;
  const auto own = node.fields.find("Port");
  const std::string text = own != node.fields.end() ? own->second : slurmd_port;
  unsigned first = 0, last = 0;
  const char* end = text.data() + text.size();
  const auto from = std::from_chars(text.data(), end, first);
  if (from.ec != std::errc() || first == 0) return {kSlurmdPort};
  const bool range = from.ptr != end && *from.ptr == '-';
  if (!range || std::from_chars(from.ptr + 1, end, last).ec != std::errc()) last = first;
  std::vector<std::string> ports;
  for (auto port = first; port <= last && ports.size() < kMostPorts; ++port) ports.push_back(std::to_string(port));
  return ports;
}

bool answers(const ::slurm::Node& node, const std::string& slurmd_port, core::Millis limit) {
  if (!is_up(node)) return false;
  const auto& host = node.address.empty() ? node.name : node.address;
  return std::ranges::any_of(ports_of(node, slurmd_port), [&](const std::string& port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0) return false;
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
    return list != nullptr && takes_connection(*list, limit);
  });
}

}  // namespace runtime::on_slurm
