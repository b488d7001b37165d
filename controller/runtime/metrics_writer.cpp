#include "runtime/metrics_writer.h"

#include <spdlog/spdlog.h>

#include <chrono>

namespace runtime {
namespace {
// A rank's heartbeat must be answered before the rank takes the controller for dead.
constexpr std::chrono::seconds kPatience{5};
}  // namespace

MetricsWriter::MetricsWriter(store::Store& store, bool threads) : store_(store), threads_(threads) {
  if (threads_) thread_ = std::thread([this] { run(); });
}

MetricsWriter::~MetricsWriter() {
  close();
  if (thread_.joinable()) thread_.join();
}

bool MetricsWriter::add(std::vector<store::MetricRow> rows) {
  if (rows.empty()) return true;
  if (!threads_) return write(rows);
  std::shared_future<bool> done;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || next_->rows.size() + rows.size() > kRowsLimit) return false;
    next_->rows.insert(next_->rows.end(), rows.begin(), rows.end());
    done = next_->done;
  }
  wake_.notify_one();
  return done.wait_for(kPatience) == std::future_status::ready && done.get();
}

std::string MetricsWriter::problem() const {
  std::lock_guard lock(mutex_);
  return problem_;
}

void MetricsWriter::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
}

void MetricsWriter::run() {
  while (true) {
    auto batch = std::make_shared<Batch>();
    bool last = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return closed_ || !next_->rows.empty(); });
      std::swap(batch, next_);
      last = closed_;
    }
    batch->promise.set_value(!last && write(batch->rows));
    if (last) return;
  }
}

bool MetricsWriter::write(const std::vector<store::MetricRow>& rows) {
  std::string problem;
  try {
    store_.add_metrics(rows);
  } catch (const std::exception& e) {
    problem = e.what();
  }
  std::lock_guard lock(mutex_);
  if (problem != problem_) {
    if (problem.empty()) {
      spdlog::info("metrics are written again");
    } else {
      spdlog::error("metrics cannot be written: {}", problem);
    }
  }
  problem_ = problem;
  return problem.empty();
}

}  // namespace runtime
