#include "rpc/reading_probe.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <condition_variable>
#include <random>
#include <utility>

namespace rpc {
namespace {

constexpr const char* kHeader = "muster-probe";

std::string random_text() {
  std::random_device random;
  std::string text;
  for (int i = 0; i < 8; ++i) text += std::to_string(random());
  return text;
}

}  // namespace

/// Sends a word each time it is asked to; the one before has been read by then.
class ReadingProbe::Sender final
    : public grpc::ClientBidiReactor<muster::v1::HeartbeatRequest, muster::v1::BeatResponse> {
 public:
  Sender(base::Reading& reading, int socket, const std::string& secret)
      : reading_(reading),
        channel_(grpc::CreateInsecureChannelFromFd("musterd", socket)),
        stub_(muster::v1::RankService::NewStub(channel_)) {
    context_.AddMetadata(kHeader, secret);
    stub_->async()->Beat(&context_, this);
    AddHold();
    StartRead(&answer_);
    StartCall();
  }
  void send(std::uint64_t n) {
    {
      const std::lock_guard lock(mutex_);
      if (is_broken_) return;
      if (is_writing_) {
        next_ = n;
        return;
      }
      is_writing_ = true;
      word_.set_step(static_cast<std::int64_t>(n));
    }
    StartWrite(&word_);
  }
  bool is_broken() {
    const std::lock_guard lock(mutex_);
    return is_broken_;
  }
  void end() {
    context_.TryCancel();
    release();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return is_done_; });
  }

  void OnReadDone(bool) override { broken(); }
  void OnWriteDone(bool ok) override {
    if (!ok) return broken();
    std::uint64_t next = 0;
    {
      const std::lock_guard lock(mutex_);
      is_writing_ = false;
      next = std::exchange(next_, 0);
    }
    if (next != 0) send(next);
  }
  void OnDone(const grpc::Status&) override {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    done_.notify_all();
  }

 private:
  void broken() {
    {
      const std::lock_guard lock(mutex_);
      is_broken_ = true;
    }
    reading_.lost();
    release();
  }
  void release() {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(is_released_, true)) return;
    }
    RemoveHold();
  }

  base::Reading& reading_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<muster::v1::RankService::Stub> stub_;
  grpc::ClientContext context_;
  muster::v1::HeartbeatRequest word_;
  muster::v1::BeatResponse answer_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::uint64_t next_ = 0;
  bool is_writing_ = false, is_broken_ = false, is_released_ = false, is_done_ = false;
};

/// The server's side.
class ReadingProbe::Receiver final
    : public grpc::ServerBidiReactor<muster::v1::HeartbeatRequest, muster::v1::BeatResponse> {
 public:
  explicit Receiver(base::Reading& reading) : reading_(reading) { StartRead(&word_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    reading_.arrived(static_cast<std::uint64_t>(word_.step()));
    StartRead(&word_);
  }
  void OnDone() override { delete this; }

 private:
  base::Reading& reading_;
  muster::v1::HeartbeatRequest word_;
};

ReadingProbe::ReadingProbe(base::Reading& reading, std::function<void(int)> connect)
    : reading_(reading), connect_(std::move(connect)), secret_(random_text()) {
  reading_.attach([this](std::uint64_t n) { send(n); });
}

void ReadingProbe::stop() {
  reading_.detach();
  if (const auto sender = std::exchange(sender_, nullptr)) sender->end();
}

void ReadingProbe::send(std::uint64_t n) {
  const std::lock_guard lock(mutex_);
  if (sender_ && sender_->is_broken()) {
    sender_->end();
    sender_.reset();
  }
  if (!sender_) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
      return reading_.lost();
    }
    connect_(ends[0]);
    sender_ = std::make_shared<Sender>(reading_, ends[1], secret_);
  }
  sender_->send(n);
}

grpc::ServerBidiReactor<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>* ReadingProbe::accept(
    const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kHeader);
  if (found == metadata.end() || found->second != secret_) return nullptr;
  return new Receiver(reading_);
}

}  // namespace rpc
