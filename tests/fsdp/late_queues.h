#pragma once
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "late_device.h"

// The streams, the dice and the memory of the pretend GPU.
namespace late {

/// A place in a stream.
struct Mark {
  bool reached = false;
  std::int64_t when = 0;  // how many jobs the device had done
};

/// What a stream does next: a kernel, or the wait for a mark, or a mark to reach.
struct Job {
  std::function<void()> kernel = {};
  std::string name = {};  // of the kernel
  std::shared_ptr<Mark> awaits = {}, reaches = {};
  std::int64_t number = 0;
};

struct Stream {
  std::deque<Job> jobs = {};
  std::uint64_t urgency = 0;
};

inline thread_local c10::StreamId current_stream = 0;

/// The queues of all streams, and the blocks of memory. See [Note: late order] and [Note: late memory]. Thread-safe.
class Queues {
 public:
  void begin(std::uint64_t seed) {
    const std::lock_guard lock(mutex_);
    run_until([this] { return idle(); });
    for (auto& [owner, blocks] : free_)
      for (void* block : blocks) std::free(block);
    free_.clear();
    streams_.assign(1, Stream());
    random_.seed(seed);
    streams_[0].urgency = random_();
    eagerness_ = draw(3) == 0 ? 0 : draw(8);
    changes_ = draw(2) == 0 ? 0 : 16;
    counts_ = {};
    used_.clear();
    failure_.clear();
  }

  c10::StreamId new_stream() {
    const std::lock_guard lock(mutex_);
    streams_.push_back({.urgency = random_()});
    return static_cast<c10::StreamId>(streams_.size()) - 1;
  }

  /// Puts a kernel into the current stream. Others may run meanwhile.
  void start(std::string name, std::function<void()> kernel) {
    const std::lock_guard lock(mutex_);
    check();
    push(current_stream, {.kernel = std::move(kernel), .name = std::move(name)});
    while (draw(8) < eagerness_)
      if (!step()) break;
  }

  void record(c10::StreamId stream, const std::shared_ptr<Mark>& mark) {
    const std::lock_guard lock(mutex_);
    push(stream, {.reaches = mark});
  }

  void block(c10::StreamId stream, const std::shared_ptr<Mark>& mark) {
    const std::lock_guard lock(mutex_);
    push(stream, {.awaits = mark});
  }

  bool is_reached(const Mark& mark) {
    const std::lock_guard lock(mutex_);
    return mark.reached;
  }

  void wait_for(const Mark& mark) {
    const std::lock_guard lock(mutex_);
    run_until([&] { return mark.reached; });
    check();
  }

  void wait_for_stream(c10::StreamId stream) {
    const auto end = std::make_shared<Mark>();
    record(stream, end);
    wait_for(*end);
  }

  bool is_idle(c10::StreamId stream) {
    const std::lock_guard lock(mutex_);
    return at(stream).jobs.empty();
  }

  void wait_for_all() {
    const std::lock_guard lock(mutex_);
    run_until([this] { return idle(); });
    check();
  }

  void* allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto& blocks = free_[{current_stream, bytes}];
    if (!blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      return block;
    }
    void* block = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    std::memset(block, 0xff, bytes);
    return block;
  }

  /// Called by destructors, so that it must not throw and no kernel may run.
  void free(void* block, std::size_t bytes, c10::StreamId owner) {
    const std::lock_guard lock(mutex_);
    push(owner, {.kernel = [block, bytes] { std::memset(block, 0xff, bytes); }});
    free_[{owner, bytes}].push_back(block);
  }

  Counts counts() {
    const std::lock_guard lock(mutex_);
    Counts out = counts_;
    out.streams = static_cast<std::int64_t>(used_.size());
    return out;
  }

 private:
  Stream& at(c10::StreamId stream) {
    const auto place = static_cast<std::size_t>(stream);
    while (streams_.size() <= place) streams_.push_back({.urgency = random_()});  // a stream from before begin()
    return streams_[place];
  }

  void push(c10::StreamId stream, Job job) {
    job.number = next_++;
    if (job.kernel) used_.insert(stream);
    at(stream).jobs.push_back(std::move(job));
  }

  std::uint64_t draw(std::uint64_t below) { return random_() % below; }

  bool idle() const {
    return std::all_of(streams_.begin(), streams_.end(), [](const Stream& s) { return s.jobs.empty(); });
  }

  template <class Done>
  void run_until(const Done& done) {
    while (!done()) TORCH_CHECK(step(), "late device: each stream waits for another");
  }

  /// Runs the next job of the most urgent stream that can go on. False: there is none.
  bool step() {
    if (changes_ > 0 && draw(changes_) == 0) streams_[draw(streams_.size())].urgency = random_();
    Stream* most = nullptr;
    std::int64_t oldest = next_;
    for (Stream& stream : streams_) {
      if (stream.jobs.empty()) continue;
      oldest = std::min(oldest, stream.jobs.front().number);
      const Mark* awaited = stream.jobs.front().awaits.get();
      if (awaited != nullptr && !awaited->reached) continue;
      if (most == nullptr || stream.urgency > most->urgency) most = &stream;
    }
    if (most == nullptr) return false;
    const Job job = std::move(most->jobs.front());
    most->jobs.pop_front();
    ++done_;
    if (job.reaches) {
      job.reaches->reached = true;
      job.reaches->when = done_;
    }
    if (!job.kernel) return true;
    ++counts_.kernels;
    if (job.number != oldest) ++counts_.overtakes;
    run(job);
    return true;
  }

  void run(const Job& job) {
    static thread_local const bool alone = (at::set_num_threads(1), true);
    static_cast<void>(alone);
    const at::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below;
    try {
      job.kernel();
    } catch (const c10::Error& error) {
      if (failure_.empty()) failure_ = job.name + ": " + error.what_without_backtrace();
    } catch (const std::exception& error) {
      if (failure_.empty()) failure_ = job.name + ": " + error.what();
    }
  }

  void check() const { TORCH_CHECK(failure_.empty(), "late device: a kernel failed, ", failure_); }

  std::recursive_mutex mutex_;
  std::vector<Stream> streams_ = std::vector<Stream>(1);
  std::mt19937_64 random_;
  std::uint64_t eagerness_ = 0;  // of 8: how often the device goes on while the host does
  std::uint64_t changes_ = 0;    // one job in so many changes an urgency; 0: none does
  std::int64_t next_ = 0, done_ = 0;
  std::map<std::pair<c10::StreamId, std::size_t>, std::vector<void*>> free_;
  std::set<c10::StreamId> used_;
  Counts counts_;
  std::string failure_;
};

}  // namespace late
