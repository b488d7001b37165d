#include "cli/client.h"

#include <grpcpp/generic/generic_stub.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <thread>
#include <utility>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "controller/net/address.h"
#include "proto/wire/version.h"

namespace cli {

Interrupts& Interrupts::instance() {
  static auto* const only = new Interrupts();  // never destroyed, since its thread uses it until the process ends
  return *only;
}

Interrupts::Interrupts() {
  struct sigaction now {};
  if (sigaction(SIGINT, nullptr, &now) == 0 && now.sa_handler == SIG_IGN)
    return;  // SIGINT is ignored: nohup, or a background job
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
  std::thread([this, interrupt] {
    for (int signal = 0; sigwait(&interrupt, &signal) == 0;) on_interrupt();
  }).detach();
}

void Interrupts::on_interrupt() {
  if (left_to_children_) return;
  if (!gently_ || requested_.exchange(true)) _exit(kInterrupted);
  std::lock_guard lock(mutex_);
  if (call_ != nullptr) call_->TryCancel();
  woken_.notify_all();
}

bool Interrupts::sleep(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !woken_.wait_for(lock, time, [this] { return requested(); });
}

Interrupts::Scope::Scope(grpc::ClientContext& context) {
  auto& interrupts = instance();
  std::lock_guard lock(interrupts.mutex_);
  interrupts.call_ = &context;
  if (interrupts.requested_) context.TryCancel();
}

Interrupts::Scope::~Scope() {
  auto& interrupts = instance();
  std::lock_guard lock(interrupts.mutex_);
  interrupts.call_ = nullptr;
}

namespace {

constexpr int kFirstReconnectMs = 100;
constexpr int kSlowestReconnectMs = 400;
constexpr int kMostAnswerBytes = 64 << 20;
constexpr std::chrono::seconds kProbePatience{1};

std::shared_ptr<grpc::Channel> open_channel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kSlowestReconnectMs);
  arguments.SetMaxReceiveMessageSize(kMostAnswerBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

constexpr std::chrono::milliseconds kBetweenKnocks{10};
constexpr std::chrono::milliseconds kFirstWait{200};
constexpr std::chrono::milliseconds kLongestWait{2000};

}  // namespace

Client::Client(const Config& config, std::function<Config()> look_again)
    : config_(config), look_again_(std::move(look_again)) {
  open();
}

void Client::open() {
  const auto channel = open_channel(address());
  connections_.push_back(
      {channel, {muster::v1::JobService::NewStub(channel), muster::v1::AdminService::NewStub(channel)}});
  now_ = &connections_.back();
}

void Client::follow_move() {
  if (!look_again_) return;
  auto found = look_again_();
  if (found.is_absent || found.address.value == address()) return;
  config_ = std::move(found);
  open();
}

bool Client::connect() {
  if (connect_once()) return true;
  if (!look_again_) return false;
  auto found = look_again_();
  const bool is_same = found.address.value == address() && found.is_absent == config_.is_absent;
  config_ = std::move(found);
  if (is_same) return false;
  open();
  return connect_once();
}

bool Client::connect_once() {
  if (config_.is_absent) return false;
  const auto deadline = std::chrono::system_clock::now() + kCallLimit;
  bool is_there = false;  // somebody listens, so a failure is one of a crowd, and another try may work
  const auto channel = now_.load()->channel;
  for (auto state = channel->GetState(true); state != GRPC_CHANNEL_READY; state = channel->GetState(true)) {
    const bool failed = state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN;
    if (failed && !is_there) is_there = is_listening() && !is_wrong_port();
    if (failed && !is_there) return false;
    if (!channel->WaitForStateChange(state, deadline)) return false;
  }
  return true;
}

void Client::must_connect() {
  if (!meet()) throw unreachable();
}

bool Client::meet() {
  if (!connect()) return false;
  token_ = read_token(config_);
  return knock();
}

// In a crowd a connection may be turned away before its first call is read, and gRPC does not tell whether a call was
// read. So the first call is one that may be repeated: of a method that there is not. Once it has an answer, the
// controller keeps the connection.
bool Client::knock() {
  const auto deadline = std::chrono::system_clock::now() + kCallLimit;
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  while (true) {
    grpc::GenericStub stub(now_.load()->channel);
    grpc::ClientContext context;
    authorize(context);
    context.set_deadline(deadline);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(&context, "/muster.v1.AdminService/Knock", request, &queue);
    call->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    const bool was_turned_away = status.error_code() == grpc::StatusCode::UNAVAILABLE;
    if (!was_turned_away || std::chrono::system_clock::now() >= deadline) return true;
    std::this_thread::sleep_for(kBetweenKnocks);
    if (!connect()) return false;
  }
}

void Client::authorize(grpc::ClientContext& context) {
  if (token_.empty()) token_ = read_token(config_);
  context.AddMetadata("authorization", "Bearer " + token_);
  context.AddMetadata(proto::kWireVersionKey, std::to_string(proto::kWireVersion));
  // A name that HTTP cannot carry is left out. The controller then goes by the address.
  const auto user = user_name();
  if (std::ranges::all_of(user, [](char c) { return c > ' ' && c <= '~'; })) context.AddMetadata("muster-user", user);
}

grpc::Status Client::try_call(const Ask& ask, std::chrono::seconds limit) {
  grpc::ClientContext context;
  authorize(context);
  context.set_deadline(std::chrono::system_clock::now() + limit);
  const auto status = ask(&context);
  refuse_old_controller(context);
  if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) return status;
  return {status.error_code(), duration_text(std::chrono::milliseconds(limit).count())};
}

void Client::refuse_old_controller(const grpc::ClientContext& context) const {
  const auto version = proto::told_wire_version(context.GetServerInitialMetadata());
  if (!version || *version >= proto::kOldestWireVersion) return;
  throw Failure(kUnreachable, "the controller at " + address() + " is too old for this muster: it speaks version " +
                                  std::to_string(*version) + " of the wire, and muster understands " +
                                  std::to_string(proto::kOldestWireVersion) +
                                  " and newer; upgrade musterd, or use the muster of its version");
}

bool Client::answers(const std::function<net::ProbedPort(const std::string& host, int port)>& as) const {
  if (address().starts_with("unix:")) return false;
  try {
    const auto where = net::parse_listen_address(address());
    return net::why_silent(as(where.host, where.port), kProbePatience, true).empty();
  } catch (const std::invalid_argument&) {
    return false;
  }
}

bool Client::is_wrong_port() const {
  if (config_.is_absent) return false;
  return answers([&](const std::string& host, int port) { return net::http_port(host, port, token_, {}); });
}

bool Client::is_listening() const {
  return answers([](const std::string& host, int port) {
    return net::ProbedPort{"", host, port, "", [](const auto&) { return net::ProbedPort::Answer::kRight; }, {}, {}};
  });
}

Failure Client::unreachable() const {
  const auto from = config_.address.source == "default" ? "" : " (" + config_.address.source + ")";
  if (is_wrong_port()) {
    const auto ready = common::read_ready_file(config_.data_folder);
    const bool known = ready && reached_at(ready->http, *ready) == address();
    return {kUnreachable, address() + from + " is the port of a dashboard, which speaks HTTP; muster speaks gRPC: " +
                              (known ? "use --address " + reached_at(ready->grpc, *ready)
                                     : "use the address that musterd --listen names (default 127.0.0.1:7600)")};
  }
  return {kUnreachable, unreachable_text() + ": " + start_remedy()};
}

std::string Client::unreachable_text() const {
  const auto from = config_.address.source == "default" ? "" : " (" + config_.address.source + ")";
  const auto place = config_.is_absent ? "" : " at " + address() + from;
  const auto doubt = !config_.doubt.empty() ? config_.doubt
                     : config_.is_absent    ? "no musterd runs on " + config_.data_folder.native()
                                            : "";
  return "controller unreachable" + place + (doubt.empty() ? "" : "; " + doubt);
}

std::string Client::start_remedy() const {
  return std::string("start it with ") + (config_.is_absent ? "muster up" : "musterd") + ", or set --address";
}

Failure Client::failure(const grpc::Status& status) const {
  const auto& text = status.error_message();
  if (is_overloaded(status)) {
    return {kUnreachable, "the controller at " + address() + " has too many calls at the same time: try again"};
  }
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
      return {kUsage, text};
    case grpc::StatusCode::NOT_FOUND:
      return {kNotFound, text + (text.find("; ") == std::string::npos ? "; muster list shows the jobs" : "")};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::ABORTED:
      return {kRefused, text};
    case grpc::StatusCode::UNAUTHENTICATED:
      return {kUnreachable, "the controller at " + address() + " refuses the token from " +
                                (config_.token ? "MUSTER_TOKEN" : config_.token_file.value) +
                                (config_.doubt.empty() ? "" : " (" + config_.doubt + ")") +
                                ": use the token of its data folder (--token-file, MUSTER_TOKEN_FILE or MUSTER_TOKEN)"};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {kUnreachable, "the controller at " + address() +
                                " is older than this muster and does not know this call: upgrade musterd, or use the "
                                "muster of its version"};
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {kUnreachable, "the controller at " + address() + " has not answered in " + text +
                                ": look at its log, or try again; muster doctor"};
    default:
      return {kUnreachable, "the controller at " + address() + " could not answer: " +
                                (text.empty() ? "no reason given" : text) + "; try again, or run muster doctor"};
  }
}

muster::v1::GetRequest of_job(std::int64_t id) {
  muster::v1::GetRequest request;
  request.set_job_id(id);
  return request;
}

// gRPC answers this way by itself, if the server has no thread for the call.
bool is_overloaded(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         status.error_message() == "Server Threadpool Exhausted";
}

bool has_to_wait(const grpc::Status& status) {
  const auto& text = status.error_message();
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         (text.starts_with("max_streams") || text.starts_with("max_connections"));
}

bool is_unchanged(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::ABORTED;
}

bool is_lost_contact(const grpc::Status& status) {
  using grpc::StatusCode;
  constexpr StatusCode kLost[] = {StatusCode::UNAVAILABLE, StatusCode::DEADLINE_EXCEEDED, StatusCode::CANCELLED,
                                  StatusCode::UNKNOWN, StatusCode::INTERNAL};
  return is_overloaded(status) || std::ranges::find(kLost, status.error_code()) != std::end(kLost);
}

Contact::Contact(Client& client, std::optional<Clock::time_point> deadline)
    : client_(client), deadline_(deadline), wait_(kFirstWait) {
  Interrupts::instance().gently();
}

bool Contact::settle(const grpc::Status& status) {
  if (status.ok()) return true;
  if (has_to_wait(status)) {
    if (!std::exchange(waits_, true)) std::cerr << "muster: " << status.error_message() << "; waiting for a turn\n";
    return pause();
  }
  if (!is_lost_contact(status)) throw client_.failure(status);
  if (!lost_) {
    std::cerr << "muster: lost contact with the controller at " << client_.address()
              << "; jobs go on without it. Reconnecting...\n";
  }
  lost_ = true;
  client_.follow_move();
  return pause();
}

bool Contact::pause() {
  auto time = wait_;
  wait_ = std::min(wait_ * 2, kLongestWait);
  if (deadline_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*deadline_ - Clock::now());
    time = std::clamp(left, std::chrono::milliseconds(0), time);
  }
  return Interrupts::instance().sleep(time) && !out_of_time();
}

void Contact::regained() {
  if (lost_) std::cerr << "muster: the controller is back\n";
  lost_ = false;
  waits_ = false;
  wait_ = kFirstWait;
}

StreamEnd Contact::stopped() const {
  return Interrupts::instance().requested() ? StreamEnd::kInterrupted : StreamEnd::kTimedOut;
}

}  // namespace cli
