#include "controller/http/access.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <nlohmann/json.hpp>

#include "base/host_name.h"
#include "base/words.h"
#include "controller/common/tokens.h"
#include "controller/service/controller.h"

namespace http {
namespace {

using base::lower_case;

constexpr const char* kTokenRemedy = "use the token in the file 'token' of musterd's data folder";

// "[::1]:80" -> "::1", "localhost:80" -> "localhost".
std::string without_port(const std::string& host) {
  if (!host.empty() && host.front() == '[') return lower_case(host.substr(1, host.find(']') - 1));
  return lower_case(host.substr(0, host.find(':')));
}

}  // namespace

std::string Sessions::open(Clock::time_point now) {
  const std::string id = common::new_token();
  const std::lock_guard lock(mutex_);
  if (ends_.size() >= kMaxSessions) ends_.erase(std::ranges::min_element(ends_, {}, &Ends::value_type::second));
  ends_[id] = now + kSessionLife;
  return id;
}

bool Sessions::is_open(const std::string& id, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto found = ends_.find(id);
  if (found != ends_.end() && now < found->second) return true;
  ends_.erase(id);
  return false;
}

Access::Access(service::Controller& controller, std::string host, int port)
    : controller_(controller), host_(lower_case(std::move(host))), cookie_("muster_session_" + std::to_string(port)) {}

bool Access::is_own_host(const std::string& host) const {
  if (host == host_ || host == "localhost") return true;
  boost::system::error_code not_numeric, no_address;
  const auto address = boost::asio::ip::make_address(host, not_numeric);
  if (!not_numeric && address.is_loopback()) return true;
  // A server that listens on all addresses accepts any numeric address. DNS rebinding needs a name.
  const auto listening = boost::asio::ip::make_address(host_, no_address);
  if (no_address || !listening.is_unspecified()) return false;
  return !not_numeric || host == lower_case(base::host_name()) || host == lower_case(base::node_name());
}

std::optional<Response> Access::refuse_foreign(const Request& request) const {
  const auto host = request.header("host");
  if (!is_own_host(without_port(host)))
    return refuse(421, "this server is not called '" + host + "'",
                  "open it as localhost or as the host that musterd listens on");
  if (request.reads()) return std::nullopt;
  const auto origin = request.header("origin");
  if (!origin.empty() && lower_case(origin) != "http://" + lower_case(host) &&
      lower_case(origin) != "https://" + lower_case(host))
    return refuse(403, "a page of '" + origin + "' may not change anything here", "use the dashboard itself");
  if (request.header("x-muster").empty())
    return refuse(403, "the header X-Muster is missing",
                  "send 'X-Muster: 1' with every request that changes something");
  return std::nullopt;
}

std::optional<Response> Access::refuse_stranger(const Request& request) {
  const auto authorization = request.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (lower_case(authorization.substr(0, kBearer.size())) == kBearer) {
    if (controller_.is_people_token(authorization.substr(kBearer.size()))) return std::nullopt;
    return refuse(401, "the bearer token is wrong", kTokenRemedy);
  }
  const std::string session = request.cookie(cookie_);
  if (!session.empty() && sessions_.is_open(session, Sessions::Clock::now())) return std::nullopt;
  return refuse(401, session.empty() ? "not logged in" : "the session has ended", kTokenRemedy);
}

Response Access::log_in(const Request& request) {
  const auto body = nlohmann::json::parse(request.body(), nullptr, false);
  if (!body.is_object() || !body.contains("token") || !body["token"].is_string())
    return refuse(400, "the body is not {\"token\": \"...\"}", "send the token as JSON");
  if (!controller_.is_people_token(body["token"].get<std::string>()))
    return refuse(401, "the token is wrong", kTokenRemedy);
  auto response = response_of("{}");
  const auto life = std::chrono::duration_cast<std::chrono::seconds>(kSessionLife).count();
  response.set("Set-Cookie", cookie_ + "=" + sessions_.open(Sessions::Clock::now()) +
                                 "; HttpOnly; SameSite=Strict; Path=/; Max-Age=" + std::to_string(life));
  return response;
}

Response Access::log_out(const Request& request) {
  sessions_.close(request.cookie(cookie_));
  auto response = response_of("{}");
  response.set("Set-Cookie", cookie_ + "=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
  return response;
}

}  // namespace http
