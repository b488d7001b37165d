#include "agent/report/grpc_reports.h"

#include <optional>
#include <utility>
#include <vector>

#include "agent/rank/grpc/grpc_outbox.h"
#include "agent/rank/grpc/grpc_reporter.h"
#include "agent/watch/report.h"

namespace agent::report {

Connect connect_by_grpc(const std::map<std::string, std::string>& environment, pid_t pid) {
  return [environment, pid] {
    const auto rank = rank::read_environment([&](const char* name) -> std::optional<std::string> {
      const auto found = environment.find(name);
      return found == environment.end() ? std::nullopt : std::optional(found->second);
    });
    return rank::make_grpc_reporter(rank, {.for_another = true, .pid = pid});
  };
}

namespace {

/// Keeps what it is told as heartbeats.
class Heartbeats : public rank::Reporter {
 public:
  Heartbeats(muster::v1::RankKey key, std::int64_t first_step)
      : key_(std::move(key)), first_step_(first_step), outbox_(key_.rank()) {}

  /// All that was told since the last call; empty: nothing.
  std::vector<muster::v1::HeartbeatRequest> take(const rank::ProgramWords& words) {
    std::vector<muster::v1::HeartbeatRequest> all;
    const bool has_words = words != news_.words;
    if (!std::exchange(has_news_, false) && !has_words) return all;
    news_.words = words;
    for (bool more = true; more;) {
      auto& request = all.emplace_back();
      *request.mutable_key() = key_;
      rank::write(news_, request);
      if (has_words && all.size() == 1) *request.mutable_program() = rank::wire(words);
      const auto batch = outbox_.fill(request);
      outbox_.acknowledge(batch, batch.steps, batch.checkpoints);
      more = batch.full;
    }
    return all;
  }

  void section(rank::Section now) override {
    has_news_ = true;
    news_.section = now;
  }
  void declare(std::vector<spec::Series> series) override { outbox_.declare(std::move(series)); }
  void step(const rank::StepReport& report) override {
    has_news_ = true;
    news_.step = report.step;
    news_.step_ms = report.step_ms;
    if (report.step >= first_step_) outbox_.add(report);
  }
  void resumed_from(std::int64_t step) override {
    has_news_ = true;
    news_.resumed_from = step;
    news_.step = step;
  }
  void checkpoint_saved(std::int64_t step, std::int64_t bytes, double ms) override {
    checkpoint_saved_at("", step, bytes, ms);
  }
  void checkpoint_saved_at(const std::string& path, std::int64_t step, std::int64_t bytes, double ms) override {
    has_news_ = true;
    outbox_.add(rank::wire(path, step, bytes, ms));
  }
  rank::StopKind stop_requested() const override { return rank::StopKind::kNone; }
  bool assigns_rendezvous() const override { return false; }
  rank::Endpoint rendezvous(std::optional<rank::Endpoint>) override { return {}; }
  void leaving(int, std::string_view) override {}

 private:
  const muster::v1::RankKey key_;
  const std::int64_t first_step_;
  rank::GrpcOutbox outbox_;
  rank::RankNews news_;
  bool has_news_ = false;
};

}  // namespace

bool read_reports_late(const std::filesystem::path& file, const muster::v1::RankKey& key, std::int64_t first_step,
                       const std::function<bool(const muster::v1::HeartbeatRequest&)>& take) {
  std::error_code none;
  const auto size = std::filesystem::file_size(file, none);
  if (none) return true;
  watch::ReportTail tail(file);
  std::string left_out;
  if (size > kMostReadLate) {
    tail.skip_to(size - kMostReadLate);
    left_out = "musterd read the last " + std::to_string(kMostReadLate >> 20) + " MiB of this rank's report file, of " +
               std::to_string(size >> 20) + " MiB, since nobody had told the rest; older steps may be missing";
  }
  Teller teller;
  Heartbeats heartbeats(key, first_step);
  for (bool more = true; more;) {
    const auto found = tail.read(true);
    more = found.more;
    for (const auto& report : found.reports) {
      // Reports left out before such a step were told already.
      if (report.step && report.step->step <= first_step + 1) left_out.clear();
      teller.tell(report, heartbeats);
    }
    auto words = teller.words();
    words.source_trouble = left_out;
    words.bad_lines = tail.bad_lines();
    words.first_bad_line = tail.first_complaint().value_or("");
    for (const auto& request : heartbeats.take(words)) {
      if (!take(request)) return false;
    }
  }
  return true;
}

}  // namespace agent::report
