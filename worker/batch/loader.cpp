#include "worker/batch/loader.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <latch>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace worker {
namespace loading {

/// A batch to be made, and then the batch.
struct BatchJob {
  std::vector<std::int64_t> samples;
  std::vector<std::uint64_t> draws;
  Batch batch{};
  std::exception_ptr error{};
  bool done = false;
};

}  // namespace loading

namespace {

using Clock = std::chrono::steady_clock;
using loading::BatchJob;

// [Note: one thread a batch] LibTorch divides large operations among the threads that at::set_num_threads() allows. The
// order of a sum depends on that number, and with it the last bits of an image. The number depends on the ranks of a
// node, and batches must not. So a batch is made by one thread. The others of the machine belong to the training.

/// Sets how many threads LibTorch uses for operations of this thread. LibTorch also keeps the number for threads that
/// have not used it yet.
void use_threads(int number) {
  at::get_num_threads();  // the first call gives this thread the number that LibTorch keeps
  at::set_num_threads(number);
}

Batch make_batch(const BatchSource& source, const BatchJob& job, bool pin) {
  const at::NoGradGuard no_grad;
  Batch batch = source.collate(job.samples, job.draws);
  return pin ? batch.pinned() : batch;
}

void require_of_loader(bool holds, const char* option, std::int64_t value, const std::string& must) {
  if (!holds) {
    throw std::invalid_argument("loader of batches: " + std::string(option) + " is " + std::to_string(value) + "; " +
                                must);
  }
}

}  // namespace

/// Makes jobs in the order in which they come.
class Loader::Threads {
 public:
  Threads(const BatchSource& source, bool pin, int count) : source_(source), pin_(pin) {
    const int number = at::get_num_threads();
    std::latch started(count);
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, &started] {
        use_threads(1);
        started.count_down();
        run();
      });
    }
    started.wait();
    use_threads(number);  // for the threads that come after these
  }

  ~Threads() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void add(std::shared_ptr<loading::BatchJob> job) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(job));
    }
    changed_.notify_all();
  }

  /// Forgets the jobs that no thread has begun.
  void forget() {
    const std::lock_guard lock(mutex_);
    waiting_.clear();
  }

  void wait(const BatchJob& job) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return job.done; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ended_ || !waiting_.empty(); });
      if (ended_) return;
      const std::shared_ptr<loading::BatchJob> job = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      try {
        job->batch = make_batch(source_, *job, pin_);
      } catch (...) {
        job->error = std::current_exception();
      }
      lock.lock();
      job->done = true;
      changed_.notify_all();
    }
  }

  const BatchSource& source_;
  const bool pin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<loading::BatchJob>> waiting_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

class Loader::State {
 public:
  State(std::shared_ptr<const BatchSource> source, data::order::Order order, int rank, int world_size,
        LoaderOptions options)
      : source_(std::move(source)), order_(std::move(order)), rank_(rank), world_size_(world_size), options_(options) {
    if (!source_) throw std::invalid_argument("loader of batches: source is missing");
    require_of_loader(order_.options().samples == source_->samples(), "the order's number of samples",
                      order_.options().samples, "it must be that of the source, " + std::to_string(source_->samples()));
    require_of_loader(world_size >= 1, "world_size", world_size, "it must be at least 1");
    require_of_loader(rank >= 0 && rank < world_size, "rank", rank,
                      "it must be in [0, " + std::to_string(world_size) + ")");
    require_of_loader(options.threads >= 0, "threads", options.threads, "it must be at least 0");
    require_of_loader(options.threads == 0 || options.ahead >= 1, "ahead", options.ahead, "threads need at least 1");
    if (options.threads > 0) threads_.emplace(*source_, options.pin, options.threads);
  }

  Batch next(std::int64_t samples) {
    require_of_loader(samples >= 1, "samples", samples, "a batch has at least 1");
    const auto start = Clock::now();
    if (samples != each_) forget();
    each_ = samples;
    Batch batch = threads_ ? made_ahead() : made_here();
    position_ += each_ * world_size_;
    waited_ += Clock::now() - start;
    return batch;
  }

  void seek(std::int64_t position) {
    require_of_loader(position >= 0, "position", position, "it must be at least 0");
    forget();
    position_ = position;
  }

  std::int64_t position() const { return position_; }
  double epoch() const { return static_cast<double>(position_) / static_cast<double>(source_->samples()); }
  double waited_ms() const { return std::chrono::duration<double, std::milli>(waited_).count(); }

 private:
  /// This rank's batch at this position of the order.
  std::shared_ptr<loading::BatchJob> job_at(std::int64_t position) {
    auto job = std::make_shared<loading::BatchJob>();
    const std::int64_t first = position + rank_ * each_;
    for (auto place = first; place < first + each_; ++place) {
      const auto sample = order_.at(place);
      job->samples.push_back(sample);
      job->draws.push_back(sample_draw(options_.seed, order_.epoch(place), sample));
    }
    return job;
  }

  Batch made_here() {
    struct Restored {
      const int number = at::get_num_threads();
      ~Restored() {
        if (number != 1) use_threads(number);
      }
    } const restored;
    if (restored.number != 1) use_threads(1);
    return make_batch(*source_, *job_at(position_), options_.pin);
  }

  Batch made_ahead() {
    while (made_.size() <= static_cast<std::size_t>(options_.ahead)) {
      made_.push_back(job_at(position_ + static_cast<std::int64_t>(made_.size()) * each_ * world_size_));
      threads_->add(made_.back());
    }
    const std::shared_ptr<loading::BatchJob> job = made_.front();
    threads_->wait(*job);
    if (job->error) {
      forget();
      std::rethrow_exception(job->error);
    }
    made_.pop_front();
    return std::move(job->batch);
  }

  void forget() {
    if (threads_) threads_->forget();
    made_.clear();
  }

  const std::shared_ptr<const BatchSource> source_;
  data::order::Order order_;
  const int rank_, world_size_;
  const LoaderOptions options_;
  std::int64_t position_ = 0;
  std::int64_t each_ = 0;                                // samples of a batch, of this rank
  std::deque<std::shared_ptr<loading::BatchJob>> made_;  // the batches from position_ on
  Clock::duration waited_{};
  std::optional<Threads> threads_;  // last, so that they end first
};

Loader::Loader(std::shared_ptr<const BatchSource> source, data::order::Order order, int rank, int world_size,
               LoaderOptions options)
    : state_(std::make_unique<State>(std::move(source), std::move(order), rank, world_size, options)) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

Batch Loader::next(std::int64_t samples) {
  return state_->next(samples);
}

std::int64_t Loader::position() const {
  return state_->position();
}

void Loader::seek(std::int64_t position) {
  state_->seek(position);
}

double Loader::epoch() const {
  return state_->epoch();
}

double Loader::waited_ms() const {
  return state_->waited_ms();
}

}  // namespace worker
