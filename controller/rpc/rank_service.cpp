#include "rpc/rank_service.h"

#include <functional>

#include "rpc/call.h"
#include "rpc/server.h"

namespace rpc {
namespace {

constexpr int kMeetingThreads = 8;

}  // namespace

/// One rank at the rendezvous, from its call to its answer.
struct RankService::Meeting {
  grpc::ServerUnaryReactor* reactor = nullptr;
  const muster::v1::RendezvousRequest* request = nullptr;
  muster::v1::RendezvousResponse* response = nullptr;
  std::string token;
  RendezvousWaiters::Clock::time_point until;
  core::AttemptKey attempt() const { return {request->key().job_id(), request->key().attempt()}; }
};

RankService::RankService(service::Controller& controller, const Callers& callers)
    : controller_(controller),
      callers_(callers),
      pool_(kRankThreads, kMaxRankCalls),
      meetings_(kMeetingThreads, kMaxRankCalls),
      beats_(std::bind_front(&service::Controller::open_stream, &controller), callers, pool_),
      tasks_(std::bind_front(&service::Controller::open_task_stream, &controller), callers, pool_),
      waiters_(kMaxRankCalls) {}

grpc::ServerUnaryReactor* RankService::run(grpc::CallbackServerContext* context, const muster::v1::RankKey& key,
                                           std::function<grpc::Status()> body) {
  callers_.note_rank(*context, {key.job_id(), key.attempt()});
  auto* reactor = context->DefaultReactor();
  // Served even when the caller has given up meanwhile: that it called is news.
  if (!pool_.post([reactor, body = std::move(body)] { reactor->Finish(guarded(body)); })) reactor->Finish(busy());
  return reactor;
}

grpc::ServerUnaryReactor* RankService::Register(grpc::CallbackServerContext* context,
                                                const muster::v1::RegisterRequest* request,
                                                muster::v1::RegisterResponse* response) {
  return run(context, request->key(), [=, this] {
    if (auto status = check_key(request->has_key(), request->key()); !status.ok()) return status;
    if (request->node().size() > kMaxText) return invalid("node: at most 4096 characters");
    return answer(controller_.register_rank(*request, bearer_token(*context)), response);
  });
}

grpc::ServerUnaryReactor* RankService::Heartbeat(grpc::CallbackServerContext* context,
                                                 const muster::v1::HeartbeatRequest* request,
                                                 muster::v1::HeartbeatResponse* response) {
  return run(context, request->key(), [=, this] {
    if (auto status = check_key(request->has_key(), request->key()); !status.ok()) return status;
    if (auto status = check(*request); !status.ok()) return status;
    return answer(controller_.heartbeat(*request, bearer_token(*context)), response);
  });
}

grpc::ServerBidiReactor<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>* RankService::Beat(
    grpc::CallbackServerContext* context) {
  if (auto* probe = probe_.load()) {
    if (auto* reactor = probe->accept(*context)) return reactor;
  }
  return beats_.open(*context);
}

grpc::ServerUnaryReactor* RankService::Rendezvous(grpc::CallbackServerContext* context,
                                                  const muster::v1::RendezvousRequest* request,
                                                  muster::v1::RendezvousResponse* response) {
  auto meeting = std::make_shared<Meeting>(Meeting{context->DefaultReactor(), request, response, bearer_token(*context),
                                                   RendezvousWaiters::Clock::now() + RendezvousWaiters::kPatience});
  auto* reactor = meeting->reactor;
  callers_.note_rank(*context, meeting->attempt());
  if (auto status = check_key(request->has_key(), request->key()); !status.ok()) {
    reactor->Finish(status);
  } else if (request->endpoint().size() > kMaxText) {
    reactor->Finish(invalid("endpoint: at most 4096 characters"));
  } else {
    ask_later(meeting);
  }
  return reactor;
}

grpc::ServerBidiReactor<muster::v1::TaskRequest, muster::v1::TaskResponse>* RankService::FollowTask(
    grpc::CallbackServerContext* context) {
  return tasks_.open(*context);
}

grpc::ServerUnaryReactor* RankService::Task(grpc::CallbackServerContext* context,
                                            const muster::v1::TaskRequest* request,
                                            muster::v1::TaskResponse* response) {
  return run(context, request->key(), [=, this] {
    if (auto status = check_key(request->has_key(), request->key()); !status.ok()) return status;
    if (auto status = check(*request); !status.ok()) return status;
    return answer(controller_.task(*request, bearer_token(*context)), response);
  });
}

void RankService::ask_later(const std::shared_ptr<Meeting>& meeting) {
  // Who brings the address the others wait for does not queue behind them.
  auto& pool = meeting->request->endpoint().empty() ? meetings_ : pool_;
  if (!pool.post([this, meeting] { ask(meeting); })) meeting->reactor->Finish(busy());
}

void RankService::ask(const std::shared_ptr<Meeting>& meeting) {
  const auto news = waiters_.news();
  const auto status =
      guarded([&] { return answer(controller_.rendezvous(*meeting->request, meeting->token), meeting->response); });
  const bool known = !meeting->response->endpoint().empty();
  if (status.ok() && !meeting->request->endpoint().empty()) waiters_.announce(meeting->attempt());
  if (!status.ok() || known || meeting->response->directive() != muster::v1::DIRECTIVE_CONTINUE) {
    meeting->reactor->Finish(status);
    return;
  }
  const auto waiting = waiters_.wait(
      meeting->attempt(), news, meeting->until, [this, meeting] { ask_later(meeting); },
      [meeting] { meeting->reactor->Finish(grpc::Status::OK); });
  if (waiting == RendezvousWaiters::Waiting::kNewsSince) ask_later(meeting);
  if (waiting == RendezvousWaiters::Waiting::kFull) meeting->reactor->Finish(busy());
}

}  // namespace rpc
