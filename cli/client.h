#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "cli/cli_config.h"
#include "controller/net/self_probe.h"
#include "muster/v1/admin_service.grpc.pb.h"
#include "muster/v1/job_service.grpc.pb.h"

namespace cli {

/// Handles Ctrl-C. It ends the program with 130. After `gently()` the first Ctrl-C only cancels the running call and
/// wakes sleepers, so that the program can say that the job goes on. A second Ctrl-C always ends the program.
///
/// There is one object for the process. Create it before any other thread: it blocks SIGINT in all threads, and a
/// thread of its own waits for SIGINT.
class Interrupts {
 public:
  static Interrupts& instance();

  void gently() { gently_ = true; }
  /// From now on this program ignores Ctrl-C. The programs that it has started in its terminal handle it.
  void leave_to_children() { left_to_children_ = true; }
  bool requested() const { return requested_; }
  /// Returns false if it was interrupted.
  bool sleep(std::chrono::milliseconds time);

  /// Cancels its call when Ctrl-C is pressed, or if it was pressed before.
  class Scope {
   public:
    explicit Scope(grpc::ClientContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

 private:
  Interrupts();
  void on_interrupt();

  std::atomic<bool> gently_{false};
  std::atomic<bool> left_to_children_{false};
  std::atomic<bool> requested_{false};
  std::mutex mutex_;
  std::condition_variable woken_;
  grpc::ClientContext* call_ = nullptr;
};

/// The exit codes of `muster`.
enum Exit : int {
  kSuccess = 0,
  kJobFailed = 1,    // the job failed or was cancelled; doctor: a check failed
  kUsage = 2,        // bad options, job file or configuration, or the job's state does not allow the request
  kNotFound = 3,     // there is no such job or attempt
  kUnreachable = 4,  // the controller does not answer, or refuses the token
  kRefused = 5,      // a limit of the controller (also a full disk) or the scheduler
  kTimedOut = 124,
  kInterrupted = 130,
};

/// Ends the program. Its text goes to stderr, and says what to try next.
class Failure : public std::runtime_error {
 public:
  Failure(Exit exit, const std::string& text) : std::runtime_error(text), exit_(exit) {}
  Exit exit() const { return exit_; }

 private:
  Exit exit_;
};

using JobStub = muster::v1::JobService::Stub;
using AdminStub = muster::v1::AdminService::Stub;

/// The connection of the command line to the controller. It ignores proxies that the environment names.
class Client {
 public:
  static constexpr std::chrono::seconds kCallLimit{10};

  /// `look_again` finds the controller anew when a connection fails: a musterd that was started meanwhile has written
  /// its address. Empty: the configuration stays.
  explicit Client(const Config& config, std::function<Config()> look_again = {});

  /// Connects, and waits at most ten seconds. Where somebody listens it tries again, since a crowd may be there.
  /// Returns false if the controller cannot be reached.
  bool connect();
  /// Connects, reads the token, and waits until the controller has answered a call. Returns false if the controller
  /// cannot be reached, or is gone again. Throws a Failure with a remedy if there is no token.
  bool meet();
  /// meet(). Throws a Failure with a remedy if the controller cannot be reached.
  void must_connect();

  const std::string& address() const { return config_.address.value; }
  const Config& config() const { return config_; }
  JobStub& jobs() { return stub<JobStub>(); }
  AdminStub& admin() { return stub<AdminStub>(); }
  /// Goes to where the controller is now, if it has moved. Calls that are under way on the former connection end there.
  void follow_move();

  /// Adds the token and the version of the wire to a call.
  void authorize(grpc::ClientContext& context);

  /// Calls a method of jobs() or admin() with this context.
  using Ask = std::function<grpc::Status(grpc::ClientContext* context)>;
  /// Lets `ask` make one call with this deadline. Returns how the call ended. If the deadline passed, the status tells
  /// the limit in place of gRPC's words.
  grpc::Status try_call(const Ask& ask, std::chrono::seconds limit = kCallLimit);
  /// Calls `method` with this deadline. Throws failure() if the call fails.
  template <typename Stub, typename Request, typename Response>
  Response call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*), const Request& request,
                std::chrono::seconds limit = kCallLimit) {
    Response response;
    const Ask ask = [&](auto* context) { return (stub<Stub>().*method)(context, request, &response); };
    const auto status = try_call(ask, limit);
    if (!status.ok()) throw failure(status);
    return response;
  }

  /// The message and the exit code for a failed call.
  Failure failure(const grpc::Status& status) const;
  /// "controller unreachable at 127.0.0.1:7600 (--address)", with what is known of it.
  std::string unreachable_text() const;
  /// How a person gets a controller: "start it with muster up, or set --address".
  std::string start_remedy() const;
  /// The Failure for a controller that cannot be reached.
  Failure unreachable() const;
  /// Call it after a failed connect(). True if an HTTP server listens at the address, so that waiting does not help.
  bool is_wrong_port() const;
  /// The token that calls carry. Empty before must_connect().
  const std::string& token() const { return token_; }

 private:
  void open();
  bool connect_once();
  /// Throws a Failure if the answer to a call tells that the controller is too old.
  void refuse_old_controller(const grpc::ClientContext& context) const;
  /// Calls until there is an answer, at most ten seconds. Returns false if nobody listens any more.
  bool knock();
  bool is_listening() const;
  /// True if the probe that `as` makes for the address finds the server that it looks for.
  bool answers(const std::function<net::ProbedPort(const std::string& host, int port)>& as) const;
  template <typename Stub>
  Stub& stub() {
    return *std::get<std::unique_ptr<Stub>>(now_.load()->stubs);
  }

  Config config_;
  const std::function<Config()> look_again_;
  std::string token_;
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    std::tuple<std::unique_ptr<JobStub>, std::unique_ptr<AdminStub>> stubs;
  };
  /// The newest last. Another thread may still call on a former one.
  std::deque<Connection> connections_;
  std::atomic<Connection*> now_{nullptr};
};

/// The request for everything that is asked of one job.
muster::v1::GetRequest of_job(std::int64_t id);

/// True if the connection was lost. The call may have been performed, so the caller may only repeat it if repeating
/// does no harm.
bool is_lost_contact(const grpc::Status& status);
/// True if the controller could not store the change, and has changed nothing. The caller may repeat the call.
bool is_unchanged(const grpc::Status& status);
/// True if too many follow, or are connected, already. It passes, and whoever follows waits for it.
bool has_to_wait(const grpc::Status& status);
/// True if the controller refused the call unread, because too many calls are running.
bool is_overloaded(const grpc::Status& status);

/// How reading a stream ended.
enum class StreamEnd { kComplete, kTimedOut, kInterrupted };

/// Reads streams to their end. If the connection is lost, it says so once on stderr, and opens the stream again until
/// that works, the deadline passes, or Ctrl-C is pressed.
class Contact {
 public:
  using Clock = std::chrono::system_clock;

  /// Without a `deadline` it tries for ever.
  explicit Contact(Client& client, std::optional<Clock::time_point> deadline = std::nullopt);

  template <typename Message>
  using Open = std::function<std::unique_ptr<grpc::ClientReader<Message>>(grpc::ClientContext*)>;

  /// Calls `open` for each try; it must ask only for what was not read yet. After `longest` the stream is opened again,
  /// so that a connection that died silently is noticed. Leave `longest` out if opening again is costly.
  template <typename Message>
  StreamEnd follow(const Open<Message>& open, const std::function<void(const Message&)>& take,
                   std::optional<std::chrono::seconds> longest = std::nullopt) {
    while (true) {
      grpc::ClientContext context;
      client_.authorize(context);
      std::optional<Clock::time_point> until = deadline_;
      if (longest) until = std::min(until.value_or(Clock::time_point::max()), Clock::now() + *longest);
      if (until) context.set_deadline(*until);
      const Interrupts::Scope scope(context);
      auto reader = open(&context);
      Message message;
      while (reader->Read(&message)) {
        regained();
        take(message);
      }
      const auto status = reader->Finish();
      if (status.ok()) return StreamEnd::kComplete;
      if (Interrupts::instance().requested() || out_of_time()) return stopped();
      const bool is_due = longest && status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
      if (!is_due && !settle(status)) return stopped();
    }
  }

  /// Reads the stream as follow() does if `follows`; else reads the stream once, and throws if the connection is lost.
  template <typename Message>
  static StreamEnd read(Client& client, bool follows, const Open<Message>& open,
                        const std::function<void(const Message&)>& take) {
    if (follows) return Contact(client).follow<Message>(open, take);
    grpc::ClientContext context;
    client.authorize(context);
    auto reader = open(&context);
    Message message;
    while (reader->Read(&message)) take(message);
    if (const auto status = reader->Finish(); !status.ok()) throw client.failure(status);
    return StreamEnd::kComplete;
  }

  /// Waits a moment before the next try. Returns false if it was interrupted or the deadline has passed.
  bool pause();
  /// Handles a failed try. Returns true to try again. Throws errors other than a lost connection and a full controller.
  bool settle(const grpc::Status& status);
  /// Notes that the connection works again.
  void regained();
  /// Why settle() or pause() returned false.
  StreamEnd stopped() const;

 private:
  bool out_of_time() const { return deadline_ && Clock::now() >= *deadline_; }

  Client& client_;
  std::optional<Clock::time_point> deadline_;
  std::chrono::milliseconds wait_;
  bool lost_ = false;
  bool waits_ = false;  // for a turn, and has said so
};

}  // namespace cli
