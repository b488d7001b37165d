#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <utility>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "cli/follow.h"
#include "cli/list.h"
#include "cli/output.h"
#include "controller/common/clock.h"
#include "proto/wire/logs.h"
#include "spec/jobfile/spec.h"

namespace cli {
namespace {

using muster::v1::LogChunk;

constexpr std::size_t kLongestHeldLine = 1 << 20;  // a longer line is printed in pieces
constexpr std::uint32_t kMostWords = 5;            // lines
constexpr std::size_t kLongestWord = 200;          // the most characters of a line
constexpr std::size_t kMostWordBytes = 64 * 1024;  // read at most this much of the log
constexpr std::chrono::seconds kWordsWithin{5};

std::vector<std::string> last_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = cut(harmless(text.substr(0, end)), kLongestWord);
    if (line.find_first_not_of(' ') != std::string::npos) lines.push_back(std::move(line));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (lines.size() > kMostWords) lines.erase(lines.begin(), lines.end() - kMostWords);
  return lines;
}

/// "2026-11-20T19:48:55.123Z". For 0, which means not known, a "-" of the same width.
std::string stamp_text(std::int64_t at_ms) {
  constexpr std::size_t kWidth = 24;
  return at_ms == 0 ? "-" + std::string(kWidth - 1, ' ') : common::time_text(core::Time(core::Millis(at_ms)));
}

/// Puts chunks together to lines and prints them. Remembers how far each log was read.
class LogPrinter {
 public:
  LogPrinter(const LogOptions& options, bool name_ranks, std::ostream& out)
      : options_(options),
        name_ranks_(name_ranks),
        out_(out),
        on_terminal_(!options.json && (&out == &std::cerr ? stderr_is_terminal() : stdout_is_terminal())),
        rows_(options.follow ? JsonRows::Form::kLines : JsonRows::Form::kArray) {}

  void take(const LogChunk& chunk) {
    const std::pair key(chunk.attempt(), chunk.rank());
    auto& log = logs_.try_emplace(key, Log{chunk.attempt(), chunk.rank()}).first->second;
    log.next_offset = chunk.next_offset();
    seen_at_ms_ = chunk.seen_at_ms();
    announce(chunk.attempt());
    std::string_view data = chunk.data();
    if (data.empty()) return;
    nothing_ = false;
    for (auto end = data.find('\n'); end != std::string_view::npos; end = data.find('\n')) {
      log.held += data.substr(0, end);
      print_line(log);
      data.remove_prefix(end + 1);
    }
    log.held += data;
    if (log.held.size() > kLongestHeldLine) print_piece(log);
    if (options_.follow) out_ << std::flush;
  }
  void end() {
    flush_all();
    if (options_.json) rows_.end();
    for (auto& [key, log] : logs_) out_ << log.shown.reset();
    out_ << std::flush;
  }
  /// True if no text has come.
  bool nothing() const { return nothing_; }
  /// Lets the request begin after everything that was taken.
  void go_on(muster::v1::LogsRequest& request) const {
    request.clear_from();
    for (const auto& [key, log] : logs_) {
      if (log.attempt != attempt_) continue;
      auto* position = request.add_from();
      position->set_attempt(log.attempt);
      position->set_rank(log.rank);
      position->set_offset(log.next_offset);
    }
    request.set_tail_lines(attempt_ == first_attempt_ ? options_.tail : 0);
  }

 private:
  struct Log {
    std::uint32_t attempt, rank;
    std::uint64_t next_offset = 0;  // offset in the file
    std::string held = {};          // the beginning of a line
    bool continues = false;         // a piece of this line was printed already
    TerminalText shown = {};
  };

  void announce(std::uint32_t attempt) {
    if (attempt_ != 0 && attempt != attempt_) {
      flush_all();
      std::cerr << "--- attempt " << attempt << " ---\n";
    }
    if (attempt_ == 0) first_attempt_ = attempt;
    attempt_ = attempt;
  }

  void print_stamp(const Log& log) {
    if (options_.timestamps && !log.continues) out_ << stamp_text(seen_at_ms_) << " ";
  }

  /// Prints the held text as a line.
  void print_line(Log& log) {
    const auto line = std::exchange(log.held, {});
    if (options_.json) {
      nlohmann::ordered_json row{{"attempt", log.attempt}, {"rank", log.rank}, {"text", line}};
      if (log.rank == proto::kSchedulerLog) row["rank"] = nullptr;
      if (options_.timestamps) row["seen_at"] = stamp_text(seen_at_ms_);
      if (options_.timestamps && seen_at_ms_ == 0) row["seen_at"] = nullptr;
      return rows_.add(with_version(row));
    }
    const auto name = "[rank " + std::to_string(log.rank) + "]";
    print_stamp(log);
    if (name_ranks_ && !log.continues && !line.starts_with(name)) out_ << name << " ";
    out_ << fit(log, line) << "\n";
    log.shown.end_line();
    log.continues = false;
  }

  /// A pipe and a file get every byte of the log.
  std::string fit(Log& log, const std::string& text) const { return on_terminal_ ? log.shown.pass(text) : text; }

  /// Prints the beginning of a long line. With the log of one rank the line is not broken. With several ranks it is,
  /// since other lines may follow.
  void print_piece(Log& log) {
    if (options_.json || name_ranks_) return print_line(log);
    print_stamp(log);
    out_ << fit(log, std::exchange(log.held, {}));
    log.continues = true;
  }

  void flush_all() {
    for (auto& [key, log] : logs_) {
      if (!log.held.empty() || log.continues) print_line(log);
    }
  }

  const LogOptions& options_;
  bool name_ranks_;
  std::ostream& out_;
  const bool on_terminal_;
  JsonRows rows_;
  bool nothing_ = true;
  std::int64_t seen_at_ms_ = 0;      // when the text that is being printed was seen
  std::uint32_t attempt_ = 0;        // the newest attempt
  std::uint32_t first_attempt_ = 0;  // options_.tail applies to this attempt
  std::map<std::pair<std::uint32_t, std::uint32_t>, Log> logs_;
};

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

/// Says that the log is empty, and where other output is. An empty log without a word looks like a mistake.
void tell_nothing(const muster::v1::Job& job, const LogOptions& options) {
  const auto name = "job " + std::to_string(job.id());
  if (job.attempts_size() == 0) {
    std::cerr << "muster: " << name << " has no log: no attempt has started\n";
    return;
  }
  std::string what = options.slurm ? "Slurm's log of " : "the log of ";
  if (options.rank) what += "rank " + std::to_string(*options.rank) + " of ";
  if (options.attempt != 0) what += "attempt " + std::to_string(options.attempt) + " of ";
  std::cerr << "muster: " << what << name << " is empty";
  if (!options.slurm && !newest_attempt(job).scheduler_job().empty()) {
    std::cerr << "; for the output of Slurm and of the lines before the ranks: muster logs " << job.id() << " --slurm";
    if (options.attempt != 0) std::cerr << " --attempt " << options.attempt;
  }
  std::cerr << "\n";
}

/// True if the newest attempt ran on Slurm and failed before any rank had a process: in the job file's setup lines, in
/// the health check, or in srun.
bool failed_before_ranks(const muster::v1::Job& job) {
  const auto& attempt = newest_attempt(job);
  const auto& cause = attempt.cause();
  if (attempt.scheduler_job().empty() || attempt.state() != "ended") return false;
  if (cause != "failed" && cause != "node_failed" && cause != "controller_lost") return false;
  return std::ranges::none_of(job.ranks(), [](const muster::v1::Rank& rank) { return rank.pid() > 0; });
}

int run_logs(Session& session, const LogOptions& options) {
  return print_logs(session.client(), options, std::cout) == StreamEnd::kInterrupted ? kInterrupted : kSuccess;
}

}  // namespace

std::vector<std::string> slurm_words(Client& client, const muster::v1::Job& job) {
  if (!failed_before_ranks(job)) return {};
  const LogOptions options{.job = job.id(), .attempt = newest_attempt(job).number(), .slurm = true, .tail = kMostWords};
  grpc::ClientContext context;
  client.authorize(context);
  context.set_deadline(std::chrono::system_clock::now() + kWordsWithin);
  const auto reader = client.jobs().Logs(&context, request_of(options));
  std::string text;
  LogChunk chunk;
  while (text.size() < kMostWordBytes && reader->Read(&chunk)) text += chunk.data();
  // A line may be as long as the file, so stop after kMostWordBytes. A log that cannot be read is not mentioned.
  context.TryCancel();
  reader->Finish();
  return last_lines(text);
}

std::string slurm_log_place(const muster::v1::Job& job) {
  const auto& id = newest_attempt(job).scheduler_job();
  if (id.empty()) return "";
  // The log of an array's element is in the folder of the array.
  const bool is_element = id.find('_') != std::string::npos;
  if (is_element || job.log_folder().empty()) return "muster logs " + std::to_string(job.id()) + " --slurm";
  return (std::filesystem::path(job.log_folder()).parent_path() / "slurm.log").native();
}

StreamEnd print_logs(Client& client, const LogOptions& options, std::ostream& out, SharedScreen* screen) {
  auto job = client.call(&JobStub::Get, of_job(options.job));
  const bool name_ranks = !options.rank && !options.slurm && jobfile::world_size(job.spec()) > 1;
  LogPrinter printer(options, name_ranks, out);
  if (options.follow && job.attempts_size() == 0 && !is_ended(job)) {
    std::cerr << "muster: job " << options.job << " has not started yet; waiting for it\n";
  }
  auto request = request_of(options);
  // After a lost connection the stream begins with the attempt that was being read, so that its end is not missed.
  const auto open = [&](grpc::ClientContext* context) {
    printer.go_on(request);
    return client.jobs().Logs(context, request);
  };
  const auto end = Contact::read<LogChunk>(client, options.follow, open, [&](const auto& chunk) {
    if (screen == nullptr) return printer.take(chunk);
    screen->print([&] { printer.take(chunk); });
  });
  printer.end();
  if (options.tell_empty && printer.nothing() && end == StreamEnd::kComplete) {
    // With follow the job may have started since.
    client.try_call([&](auto* context) { return client.jobs().Get(context, of_job(options.job), &job); });
    tell_nothing(job, options);
  }
  return end;
}

void define_logs(CLI::App& app, Session& session) {
  auto options = add_action<LogOptions>(app, session, run_logs);
  options->tell_empty = true;
  add_job(app, options->job);
  auto* follow =
      app.add_flag("-f,--follow", options->follow, "Go on with new lines and later attempts until the job ends");
  auto* rank = add_number(app, "--rank", options->rank, 0, UINT32_MAX - 1, "Only this rank");
  app.add_flag("--slurm", options->slurm, "The output of Slurm, setup lines and health check, not of the ranks")
      ->excludes(rank);
  add_number(app, "--attempt", options->attempt, 1, UINT32_MAX, "This attempt, not the newest");
  add_number(app, "-n,--tail", options->tail, 1, UINT32_MAX, "Only the last N lines of each rank");
  app.add_flag("--timestamps", options->timestamps,
               "With -f: before each line the time (UTC) at which the controller saw it")
      ->needs(follow);
  app.add_flag("--json", options->json, "An array of objects {attempt, rank, text}; with -f one object a line");
}

}  // namespace cli
