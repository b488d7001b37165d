#include "cli/log_view.h"

#include <cstdio>
#include <ctime>
#include <iostream>

#include "cli/follow.h"
#include "cli/json_view.h"
#include "wire/logs.h"

namespace cli {
namespace {

using muster::v1::LogChunk;

constexpr std::size_t kLongestHeldLine = 1 << 20;  // a longer line is printed in pieces

/// "2026-11-20T19:48:55.123Z". For 0, which means not known, a "-" of the same width.
std::string stamp_text(std::int64_t at_ms) {
  constexpr std::size_t kWidth = 24;
  if (at_ms == 0) return "-" + std::string(kWidth - 1, ' ');
  const auto seconds = static_cast<std::time_t>(at_ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char day[32], text[40];
  std::strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text, sizeof text, "%s.%03dZ", day, static_cast<int>(at_ms % 1000));
  return text;
}

/// Puts chunks together to lines and prints them. Remembers how far each log was read.
class LogPrinter {
 public:
  LogPrinter(const LogOptions& options, bool name_ranks, std::ostream& out)
      : options_(options), name_ranks_(name_ranks), out_(out), rows_(options.follow) {}

  void take(const LogChunk& chunk);
  void end();
  /// True if no text has come.
  bool nothing() const { return nothing_; }
  /// Lets the request begin after everything that was taken.
  void go_on(muster::v1::LogsRequest& request) const;

 private:
  struct Log {
    std::uint64_t next_offset = 0;  // offset in the file
    std::string held;               // the beginning of a line
    bool continues = false;         // a piece of this line was printed already
  };
  void announce(std::uint32_t attempt);
  void print_line(std::uint32_t attempt, std::uint32_t rank, std::string_view line, Log& log);
  void print_piece(std::uint32_t attempt, std::uint32_t rank, Log& log);
  void flush(std::uint32_t attempt, std::uint32_t rank, Log& log);

  const LogOptions& options_;
  bool name_ranks_;
  std::ostream& out_;
  JsonRows rows_;
  bool nothing_ = true;
  std::int64_t seen_at_ms_ = 0;      // when the text that is being printed was seen
  std::uint32_t attempt_ = 0;        // the newest attempt
  std::uint32_t first_attempt_ = 0;  // options_.tail applies to this attempt
  std::map<std::pair<std::uint32_t, std::uint32_t>, Log> logs_;
};

void LogPrinter::announce(std::uint32_t attempt) {
  if (attempt_ != 0 && attempt != attempt_) {
    for (auto& [key, log] : logs_) flush(key.first, key.second, log);
    std::cerr << "--- attempt " << attempt << " ---\n";
  }
  if (attempt_ == 0) first_attempt_ = attempt;
  attempt_ = attempt;
}

void LogPrinter::go_on(muster::v1::LogsRequest& request) const {
  request.clear_from();
  for (const auto& [key, log] : logs_) {
    if (key.first != attempt_) continue;
    auto* position = request.add_from();
    position->set_attempt(key.first);
    position->set_rank(key.second);
    position->set_offset(log.next_offset);
  }
  request.set_tail_lines(attempt_ == first_attempt_ ? options_.tail : 0);
}

void LogPrinter::print_line(std::uint32_t attempt, std::uint32_t rank, std::string_view line, Log& log) {
  if (options_.json) {
    const auto number = rank == proto::kSchedulerLog ? nlohmann::ordered_json() : nlohmann::ordered_json(rank);
    nlohmann::ordered_json row{{"attempt", attempt}, {"rank", number}, {"text", line}};
    if (options_.timestamps) {
      row["seen_at"] = seen_at_ms_ == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(stamp_text(seen_at_ms_));
    }
    rows_.add(with_version(row));
    return;
  }
  const auto name = "[rank " + std::to_string(rank) + "]";
  if (options_.timestamps && !log.continues) out_ << stamp_text(seen_at_ms_) << " ";
  if (name_ranks_ && !log.continues && !line.starts_with(name)) out_ << name << " ";
  out_ << line << "\n";
  log.continues = false;
}

/// Prints the beginning of a long line. With the log of one rank the line is not broken. With several ranks it is,
/// since other lines may follow.
void LogPrinter::print_piece(std::uint32_t attempt, std::uint32_t rank, Log& log) {
  if (options_.json || name_ranks_) {
    print_line(attempt, rank, log.held, log);
  } else {
    if (options_.timestamps && !log.continues) out_ << stamp_text(seen_at_ms_) << " ";
    out_ << log.held;
    log.continues = true;
  }
  log.held.clear();
}

void LogPrinter::take(const LogChunk& chunk) {
  auto& log = logs_[{chunk.attempt(), chunk.rank()}];
  log.next_offset = chunk.next_offset();
  seen_at_ms_ = chunk.seen_at_ms();
  announce(chunk.attempt());
  std::string_view data = chunk.data();
  if (data.empty()) return;
  nothing_ = false;
  for (auto end = data.find('\n'); end != std::string_view::npos; end = data.find('\n')) {
    if (log.held.empty()) {
      print_line(chunk.attempt(), chunk.rank(), data.substr(0, end), log);
    } else {
      log.held += data.substr(0, end);
      print_line(chunk.attempt(), chunk.rank(), log.held, log);
      log.held.clear();
    }
    data.remove_prefix(end + 1);
  }
  log.held += data;
  if (log.held.size() > kLongestHeldLine) print_piece(chunk.attempt(), chunk.rank(), log);
  if (options_.follow) out_ << std::flush;
}

void LogPrinter::flush(std::uint32_t attempt, std::uint32_t rank, Log& log) {
  if (!log.held.empty() || log.continues) print_line(attempt, rank, log.held, log);
  log.held.clear();
}

void LogPrinter::end() {
  for (auto& [key, log] : logs_) flush(key.first, key.second, log);
  if (options_.json) rows_.end();
  out_ << std::flush;
}

muster::v1::LogsRequest request_of(const LogOptions& options) {
  muster::v1::LogsRequest request;
  request.set_job_id(options.job);
  request.set_attempt(options.attempt);
  if (options.rank) request.set_rank(*options.rank);
  if (options.slurm) request.set_rank(proto::kSchedulerLog);
  request.set_tail_lines(options.tail);
  request.set_follow(options.follow);
  return request;
}

/// Follows the log over lost connections. After a lost connection the stream begins with the attempt that was being
/// read, so that its end is not missed.
StreamEnd follow_logs(Client& client, const LogOptions& options, LogPrinter& printer) {
  auto request = request_of(options);
  const auto open = [&](grpc::ClientContext* context) {
    printer.go_on(request);
    return client.jobs().Logs(context, request);
  };
  return Contact(client).follow<LogChunk>(open, [&](const LogChunk& chunk) { printer.take(chunk); });
}

/// Says that the log is empty, and where other output is. An empty log without a word looks like a mistake.
void tell_nothing(const muster::v1::Job& job, const LogOptions& options) {
  const auto name = "job " + std::to_string(job.id());
  if (job.attempts_size() == 0) {
    std::cerr << "muster: " << name << " has no log: no attempt has started\n";
    return;
  }
  const auto& newest = *job.attempts().rbegin();
  std::string what = options.slurm ? "Slurm's log of " : "the log of ";
  if (options.rank) what += "rank " + std::to_string(*options.rank) + " of ";
  if (options.attempt != 0) what += "attempt " + std::to_string(options.attempt) + " of ";
  std::cerr << "muster: " << what << name << " is empty";
  if (!options.slurm && !newest.scheduler_job().empty()) {
    std::cerr << "; for the output of Slurm and of the lines before the ranks: muster logs " << job.id() << " --slurm";
    if (options.attempt != 0) std::cerr << " --attempt " << options.attempt;
  }
  std::cerr << "\n";
}

}  // namespace

StreamEnd print_logs(Client& client, const LogOptions& options, std::ostream& out) {
  muster::v1::GetRequest get;
  get.set_job_id(options.job);
  auto job = client.call(client.jobs(), &muster::v1::JobService::Stub::Get, get);
  const auto& resources = job.spec().resources();
  const bool name_ranks =
      !options.rank && !options.slurm && std::uint64_t{resources.nodes()} * resources.ranks_per_node() > 1;
  LogPrinter printer(options, name_ranks, out);
  auto end = StreamEnd::kComplete;
  if (options.follow) {
    if (job.attempts_size() == 0 && !is_ended(job)) {
      std::cerr << "muster: job " << options.job << " has not started yet; waiting for it\n";
    }
    end = follow_logs(client, options, printer);
  } else {
    const auto request = request_of(options);
    Contact::read<LogChunk>(
        client, [&](grpc::ClientContext* context) { return client.jobs().Logs(context, request); },
        [&](const LogChunk& chunk) { printer.take(chunk); });
  }
  printer.end();
  if (options.tell_empty && printer.nothing() && end == StreamEnd::kComplete) {
    // With follow the job may have started since.
    client.try_call(client.jobs(), &muster::v1::JobService::Stub::Get, get, &job);
    tell_nothing(job, options);
  }
  return end;
}

}  // namespace cli
