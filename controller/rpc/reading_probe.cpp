#include "controller/rpc/reading_probe.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>

#include <utility>

#include "controller/common/tokens.h"

namespace rpc {
namespace {

constexpr const char* kHeader = "muster-probe";

}  // namespace

ReadingProbe::ReadingProbe(common::Reading& reading, std::function<void(int)> connect)
    : reading_(reading),
      connect_(std::move(connect)),
      secret_(common::new_token()),
      loop_("how late heartbeats are read was not measured", true, [this] {
        send();
        return std::nullopt;
      }) {}

void ReadingProbe::start() {
  loop_.start();
  reading_.attach([this](std::uint64_t n) {
    {
      const std::lock_guard lock(mutex_);
      next_ = n;
    }
    loop_.wake();
  });
}

void ReadingProbe::stop() {
  reading_.detach();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (sent_ != nullptr) sent_->TryCancel();
  }
  loop_.close();
}

bool ReadingProbe::connect_if_broken() {
  if (stub_) return true;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return false;
  connect_(ends[0]);
  stub_ = muster::v1::RankService::NewStub(grpc::CreateInsecureChannelFromFd("musterd", ends[1]));
  return true;
}

// Waits for the answer, which comes after the word was read. A word that is asked for meanwhile is sent next.
void ReadingProbe::send() {
  grpc::ClientContext context;
  muster::v1::HeartbeatRequest word;
  muster::v1::HeartbeatResponse answer;
  {
    const std::lock_guard lock(mutex_);
    word.set_step(static_cast<std::int64_t>(std::exchange(next_, 0)));
    if (stopping_ || word.step() == 0) return;
    sent_ = &context;
  }
  context.AddMetadata(kHeader, secret_);
  const bool is_read = connect_if_broken() && stub_->Heartbeat(&context, word, &answer).ok();
  if (!is_read) {
    stub_.reset();
    reading_.lost();
  }
  const std::lock_guard lock(mutex_);
  sent_ = nullptr;
}

bool ReadingProbe::took(const grpc::CallbackServerContext& context, const muster::v1::HeartbeatRequest& word) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kHeader);
  if (found == metadata.end() || found->second != secret_) return false;
  reading_.arrived(static_cast<std::uint64_t>(word.step()));
  return true;
}

}  // namespace rpc
