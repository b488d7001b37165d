// heartbeat_load PORT stream|call|task_stream|task_call WORLD JOBS INTERVAL_MS SECONDS ROWS CALM: plays the ranks of so
// many jobs, a connection each, and sends a heartbeat of each every interval; ROWS 1: with a row of metrics. CALM 1: it
// first waits until no rank is told a longer interval. With task_ it plays the tasks beside the ranks instead. The
// tokens of jobs 1, 2 ... are read from the input, a line each. It speaks HTTP/2 by itself, since two cores must carry
// it and what it measures. As a rank does, it takes the interval that it is told. Prints "warm" when all are connected
// and have been heard, then after SECONDS a line of JSON: heartbeats sent and refused, connections lost, and how long
// an answer took that was asked for.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "muster/v1/rank_service.pb.h"

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

Clock::duration milliseconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(Milliseconds(count));
}

enum Frame : std::uint8_t { kData = 0, kHeaders = 1, kSettings = 4, kPing = 6, kGoAway = 7 };
constexpr std::uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4;
constexpr std::size_t kFrameHead = 9, kMessageHead = 5;
/// One heartbeat in so many asks for an answer that is measured.
constexpr std::uint64_t kAskEvery = 16;
/// Ranks that are connecting at a time, and how long all may take. Each rank's start is an event in the store.
constexpr std::size_t kComeAtOnce = 64;
constexpr std::chrono::seconds kComeWithin{180};
constexpr std::chrono::seconds kCalmWithin{120};

struct Options {
  int port = 0;
  bool stream = true;
  bool tasks = false;  // play muster-agent instead of the ranks
  std::uint32_t world = 0, jobs = 0;
  double interval_ms = 0, seconds = 0;
  bool rows = false;
  bool calm = false;  // measure once ranks are asked for no longer interval than their own
};

struct Rank {
  int socket = -1;
  std::uint32_t job = 0, rank = 0, next_stream = 1;
  std::uint64_t beats = 0;
  double interval_ms = 0;
  Clock::time_point due{}, asked{};
  bool waits = false;  // for an answer
  bool has_data = false;
  bool is_heard = false;
  std::string in;
};

std::string big_endian(std::uint32_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream, const std::string& payload) {
  return big_endian(static_cast<std::uint32_t>(payload.size()), 3) + static_cast<char>(type) +
         static_cast<char>(flags) + big_endian(stream, 4) + payload;
}

/// A header that no table remembers.
std::string header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
}

class Load {
 public:
  Load(Options options, std::vector<std::string> tokens) : options_(options), tokens_(std::move(tokens)) {}

  int run() {
    connect_all();
    const auto begun = Clock::now();
    go_on_until(begun + milliseconds(std::max(3000.0, 3 * options_.interval_ms)));
    // All ranks came within seconds, and may have been told to send less often since then.
    const auto is_asked_for_less = [&](const Rank& rank) { return rank.interval_ms > options_.interval_ms; };
    while (options_.calm && std::ranges::any_of(ranks_, is_asked_for_less) && Clock::now() < begun + kCalmWithin)
      turn(1);
    std::cout << "warm" << std::endl;
    sent_ = refused_ = 0;
    answers_.clear();
    const auto measured = Clock::now();
    go_on_until(measured + milliseconds(1000 * options_.seconds));
    const double seconds = Milliseconds(Clock::now() - measured).count() / 1000;
    std::ranges::sort(answers_);
    const auto at = [&](double part) {
      return answers_.empty()
                 ? 0
                 : answers_[std::min(answers_.size() - 1,
                                     static_cast<std::size_t>(part * static_cast<double>(answers_.size())))];
    };
    std::cout << "{\"seconds\": " << seconds << ", \"sent\": " << sent_ << ", \"refused\": " << refused_
              << ", \"lost\": " << lost_ << ", \"interval_ms\": " << ranks_[0].interval_ms
              << ", \"p50_ms\": " << at(0.5) << ", \"p99_ms\": " << at(0.99) << "}" << std::endl;
    return 0;
  }

 private:
  using Due = Clock::time_point;

  void connect_all() {
    const auto begun = Clock::now();
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    ranks_.resize(std::size_t{options_.world} * options_.jobs);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      auto& rank = ranks_[i];
      rank.job = static_cast<std::uint32_t>(i / options_.world) + 1;
      rank.rank = static_cast<std::uint32_t>(i % options_.world);
      rank.interval_ms = options_.interval_ms;
      connect(rank, i);
      beat(rank, Clock::now());
      rank.due = Clock::now() + milliseconds(options_.interval_ms * static_cast<double>(i % 1000) / 1000);
      // Those who are connected beat meanwhile.
      do turn(0);
      while (i + 1 >= heard_ + kComeAtOnce && Clock::now() < begun + kComeWithin);
    }
    while (heard_ + lost_ < ranks_.size() && Clock::now() < begun + kComeWithin) turn(1);
    if (heard_ + lost_ < ranks_.size())
      throw std::runtime_error("only " + std::to_string(heard_) + " ranks were heard");
  }

  void connect(Rank& rank, std::size_t index) {
    rank.socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(options_.port));
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    if (rank.socket < 0 || ::connect(rank.socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("cannot connect rank " + std::to_string(index) + ": " + std::strerror(errno));
    }
    const int one = 1;
    ::setsockopt(rank.socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::fcntl(rank.socket, F_SETFL, O_NONBLOCK);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = index;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, rank.socket, &event);
    write(rank, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(kSettings, 0, 0, ""));
    if (options_.stream) write(rank, headers_of(rank, options_.tasks ? "FollowTask" : "Beat"));
  }

  std::string headers_of(Rank& rank, const std::string& method) {
    const auto stream = rank.next_stream;
    rank.next_stream += 2;
    return frame(kHeaders, kEndHeaders, stream,
                 header(":method", "POST") + header(":scheme", "http") +
                     header(":path", "/muster.v1.RankService/" + method) + header(":authority", "bench") +
                     header("te", "trailers") + header("content-type", "application/grpc") +
                     header("authorization", "Bearer " + tokens_.at(rank.job - 1)));
  }

  void write(Rank& rank, const std::string& bytes) {
    if (rank.socket < 0) return;
    // A rank whose socket is full would wait; here it is an error, since nothing of this size fills one.
    if (::write(rank.socket, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) lose(rank);
  }

  void lose(Rank& rank) {
    if (rank.socket < 0) return;
    ::close(rank.socket);
    rank.socket = -1;
    ++lost_;
  }

  void go_on_until(Clock::time_point end) {
    while (Clock::now() < end) turn(1);
  }

  void turn(int wait_ms) {
    const auto now = Clock::now();
    for (auto& rank : ranks_) {
      if (rank.socket >= 0 && rank.due <= now && rank.due != Due{}) beat(rank, now);
    }
    std::array<epoll_event, 512> events{};
    const int count = ::epoll_wait(epoll_, events.data(), events.size(), wait_ms);
    for (int i = 0; i < count; ++i) read(ranks_[events[static_cast<std::size_t>(i)].data.u64]);
  }

  void beat(Rank& rank, Clock::time_point now) {
    rank.due += milliseconds(rank.interval_ms);
    if (!options_.stream && rank.waits) return;  // a call at a time; it is late
    ++rank.beats;
    const bool asks = !options_.stream || rank.beats == 1 || (rank.beats + rank.rank) % kAskEvery == 0;
    if (asks && !rank.waits) rank.asked = now, rank.waits = true;
    const auto bytes = options_.tasks ? task(rank, asks) : heartbeat(rank, asks);
    const auto message = std::string(1, '\0') + big_endian(static_cast<std::uint32_t>(bytes.size()), 4) + bytes;
    if (options_.stream) {
      write(rank, frame(kData, 0, 1, message));
    } else {
      rank.has_data = false;
      const auto head = headers_of(rank, options_.tasks ? "Task" : "Heartbeat");
      write(rank, head + frame(kData, kEndStream, rank.next_stream - 2, message));
    }
    ++sent_;
  }

  static void set_key(muster::v1::RankKey& key, const Rank& rank) {
    key.set_job_id(rank.job);
    key.set_attempt(1);
    key.set_rank(rank.rank);
  }

  std::string heartbeat(Rank& rank, bool asks) {
    request_.Clear();
    set_key(*request_.mutable_key(), rank);
    request_.set_step(static_cast<std::int64_t>(rank.beats));
    request_.set_section(muster::v1::SECTION_STEP);
    request_.set_memory_bytes(1 << 30);
    request_.set_memory_peak_bytes(1 << 30);
    request_.set_step_ms(1000);
    if (options_.rows) add_row(rank);
    request_.set_answer_soon(options_.stream && asks);
    return request_.SerializeAsString();
  }

  std::string task(const Rank& rank, bool asks) {
    muster::v1::TaskRequest request;
    set_key(*request.mutable_key(), rank);
    request.set_node("node" + std::to_string(rank.rank / 8));
    request.set_pid(1000 + rank.rank);
    request.set_state(muster::v1::PROCESS_RUNNING);
    request.set_slurm_job("1234");
    request.set_answer_soon(options_.stream && asks);
    return request.SerializeAsString();
  }

  void add_row(Rank& rank) {
    request_.set_first_metric(rank.beats - 1);
    auto& row = *request_.add_metrics();
    row.set_step(static_cast<std::int64_t>(rank.beats));
    row.set_step_ms(1000);
    row.set_memory_bytes(1 << 30);
    row.set_memory_peak_bytes(1 << 30);
    row.set_at_ms(1'800'000'000'000);
    for (const char* name : {"train/loss", "tokens_per_s"}) {
      auto& value = *row.add_values();
      value.set_series(name);
      value.set_value(2.5);
    }
  }

  void read(Rank& rank) {
    std::array<char, 65536> buffer;
    const auto size = ::read(rank.socket, buffer.data(), buffer.size());
    if (size <= 0) return lose(rank);
    rank.in.append(buffer.data(), static_cast<std::size_t>(size));
    std::size_t at = 0;
    while (rank.socket >= 0 && rank.in.size() - at >= kFrameHead) {
      const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(rank.in[at + i]); };
      const std::size_t length = byte(0) << 16 | byte(1) << 8 | byte(2);
      if (rank.in.size() - at < kFrameHead + length) break;
      take(rank, byte(3), byte(4), rank.in.substr(at + kFrameHead, length));
      at += kFrameHead + length;
    }
    rank.in.erase(0, at);
  }

  void take(Rank& rank, std::uint8_t type, std::uint8_t flags, const std::string& payload) {
    if (type == kSettings && (flags & kAck) == 0) write(rank, frame(kSettings, kAck, 0, ""));
    if (type == kPing && (flags & kAck) == 0) write(rank, frame(kPing, kAck, 0, payload));
    if (type == kGoAway) lose(rank);
    if (type == kData && payload.size() >= kMessageHead) {
      rank.has_data = true;
      if (options_.stream) {
        muster::v1::BeatResponse answer;  // TaskResponse has the interval in the same place
        answer.ParseFromArray(payload.data() + kMessageHead, static_cast<int>(payload.size() - kMessageHead));
        rank.interval_ms = static_cast<double>(answer.heartbeat_interval_ms());
        answered(rank);
      }
    }
    if (type == kHeaders && (flags & kEndStream) != 0) {
      if (options_.stream) return lose(rank);
      if (!rank.has_data) ++refused_;
      answered(rank);
    }
  }

  void answered(Rank& rank) {
    if (rank.waits) answers_.push_back(Milliseconds(Clock::now() - rank.asked).count());
    if (!std::exchange(rank.is_heard, true)) ++heard_;
    rank.waits = false;
  }

  const Options options_;
  const std::vector<std::string> tokens_;
  int epoll_ = -1;
  std::vector<Rank> ranks_;
  muster::v1::HeartbeatRequest request_;
  std::uint64_t sent_ = 0, refused_ = 0, lost_ = 0, heard_ = 0;
  std::vector<double> answers_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9) {
    std::cerr << "usage: heartbeat_load PORT stream|call|task_stream|task_call WORLD JOBS INTERVAL_MS SECONDS ROWS "
                 "CALM < TOKENS\n";
    return 2;
  }
  try {
    base::raise_open_files_limit();
    Options options;
    options.port = std::stoi(argv[1]);
    const std::string how = argv[2];
    options.stream = how.ends_with("stream");
    options.tasks = how.starts_with("task_");
    options.world = static_cast<std::uint32_t>(std::stoul(argv[3]));
    options.jobs = static_cast<std::uint32_t>(std::stoul(argv[4]));
    options.interval_ms = std::stod(argv[5]);
    options.seconds = std::stod(argv[6]);
    options.rows = std::string(argv[7]) == "1";
    options.calm = std::string(argv[8]) == "1";
    std::vector<std::string> tokens;
    for (std::string line; tokens.size() < options.jobs && std::getline(std::cin, line);) tokens.push_back(line);
    return Load(options, std::move(tokens)).run();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
