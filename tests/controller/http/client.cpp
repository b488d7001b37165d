#include "tests/controller/http/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <sstream>
#include <stdexcept>

Client::Client(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)), port_(port) {
  const timeval patience{kPatienceSeconds, 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
    throw std::runtime_error("cannot connect to port " + std::to_string(port));
}

Client::~Client() {
  close(socket_);
}

void Client::read_little() {
  const int bytes = 4096;
  setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

bool Client::send(const std::string& bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const auto n = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

bool Client::fill() {
  char chunk[16384];
  const auto n = recv(socket_, chunk, sizeof chunk, 0);
  if (n <= 0) return false;
  buffer_.append(chunk, static_cast<std::size_t>(n));
  return true;
}

Client::Answer Client::receive(bool head_only) {
  Answer answer;
  while (buffer_.find("\r\n\r\n") == std::string::npos)
    if (!fill()) return answer;
  const auto end = buffer_.find("\r\n\r\n");
  std::istringstream head(buffer_.substr(0, end));
  buffer_.erase(0, end + 4);
  std::string line;
  std::getline(head, line);
  answer.status = std::stoi(line.substr(9, 3));
  while (std::getline(head, line)) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const auto colon = line.find(": ");
    std::string name = line.substr(0, colon);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    answer.headers[name] = line.substr(colon + 2);
  }
  const auto length = answer.headers.find("content-length");
  const std::size_t bytes = length == answer.headers.end() || head_only ? 0 : std::stoul(length->second);
  while (buffer_.size() < bytes)
    if (!fill()) break;
  answer.body = buffer_.substr(0, bytes);
  buffer_.erase(0, bytes);
  return answer;
}

Client::Answer Client::ask(const std::string& method, const std::string& target,
                           const std::vector<std::string>& headers, const std::string& body) {
  std::string text = method + " " + target + " HTTP/1.1\r\n";
  bool has_host = false;
  for (const auto& header : headers) {
    text += header + "\r\n";
    has_host |= header.starts_with("Host:");
  }
  if (!has_host) text += "Host: 127.0.0.1:" + std::to_string(port_) + "\r\n";
  if (!body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  send(text + "\r\n" + body);
  return receive(method == "HEAD");
}

std::string Client::read_until(const std::string& text) {
  std::size_t at;
  while ((at = buffer_.find(text)) == std::string::npos)
    if (!fill()) return {};
  const std::string out = buffer_.substr(0, at + text.size());
  buffer_.erase(0, at + text.size());
  return out;
}

bool Client::is_closed_by_peer() {
  while (true) {
    char chunk[16384];
    const auto n = recv(socket_, chunk, sizeof chunk, 0);
    if (n == 0) return true;
    if (n < 0) return errno == ECONNRESET;
  }
}
