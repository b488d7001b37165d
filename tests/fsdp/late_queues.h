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

#include "tests/fsdp/late_device.h"
#include "tests/fsdp/late_recording.h"

// The streams, the dice and the memory of the pretend GPU.
namespace late {

struct Stream {
  std::deque<Job> jobs = {};
  std::uint64_t urgency = 0;
};

/// Memory of the device, from allocate() to free().
struct Block {
  void* start = nullptr;
  std::size_t bytes = 0;
  c10::StreamId owner = 0;
  std::uint64_t number = 0;                  // no other block has it
  std::shared_ptr<OwnMemory> of_graph = {};  // allocated while a graph was recorded, which owns the memory
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
    TORCH_CHECK(!recording_, "late device: begin() within a recording");
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
    if (recording_ && recording_->holds(current_stream))
      return recording_->add(current_stream, {.kernel = std::move(kernel), .name = std::move(name)});
    push(current_stream, {.kernel = std::move(kernel), .name = std::move(name)});
    go_on();
  }

  void record(c10::StreamId stream, const std::shared_ptr<Mark>& mark) {
    const std::lock_guard lock(mutex_);
    if (recording_ && recording_->holds(stream)) return recording_->record(stream, mark);
    push(stream, {.reaches = mark});
  }

  void block(c10::StreamId stream, const std::shared_ptr<Mark>& mark) {
    const std::lock_guard lock(mutex_);
    if (recording_ && recording_->blocks(stream, mark)) return;
    TORCH_CHECK(mark->graph == 0, "late device: a wait outside of a graph for an event within it");
    push(stream, {.awaits = mark});
  }

  bool is_reached(const Mark& mark) {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(mark.graph == 0, "late device: the host asks for an event within a graph");
    return mark.reached;
  }

  void wait_for(const Mark& mark) {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(mark.graph == 0, "late device: the host waits for an event within a graph");
    run_until([&] { return mark.reached; });
    check();
  }

  void wait_for_stream(c10::StreamId stream) {
    {
      const std::lock_guard lock(mutex_);
      TORCH_CHECK(!recording_ || !recording_->holds(stream), "late device: the host waits while a graph is recorded");
    }
    const auto end = std::make_shared<Mark>();
    record(stream, end);
    wait_for(*end);
  }

  bool is_idle(c10::StreamId stream) {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!recording_ || !recording_->holds(stream), "late device: the host asks while a graph is recorded");
    return at(stream).jobs.empty();
  }

  void wait_for_all() {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!recording_, "late device: the host waits while a graph is recorded");
    run_until([this] { return idle(); });
    check();
  }

  Block allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    Block block{.bytes = bytes, .owner = current_stream, .number = ++blocks_};
    if (recording_ && recording_->holds(current_stream)) block.of_graph = recording_->memory();
    auto& blocks = (block.of_graph ? block.of_graph->free : free_)[{current_stream, bytes}];
    if (!blocks.empty()) {
      block.start = blocks.back();
      blocks.pop_back();
    } else {
      block.start = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
      std::memset(block.start, 0xff, bytes);
      if (block.of_graph) block.of_graph->add(block.start, bytes);
    }
    live_[static_cast<char*>(block.start)] = {bytes, block.number, block.of_graph != nullptr};
    return block;
  }

  /// Called by destructors, so that it must not throw and no kernel may run.
  void free(const Block& block) {
    const std::lock_guard lock(mutex_);
    live_.erase(static_cast<char*>(block.start));
    Job overwrite{.kernel = [start = block.start, bytes = block.bytes] { std::memset(start, 0xff, bytes); }};
    if (!block.of_graph) {
      push(block.owner, std::move(overwrite));
      free_[{block.owner, block.bytes}].push_back(block.start);
    } else if (recording_ && recording_->memory() == block.of_graph) {
      recording_->add_free(block.owner, std::move(overwrite));
      block.of_graph->free[{block.owner, block.bytes}].push_back(block.start);
    }  // else replays go on using it
  }

  /// A kernel that is being started uses this memory.
  void use(const void* address) {
    const std::lock_guard lock(mutex_);
    if (!recording_ || !recording_->holds(current_stream)) return;
    const auto after = live_.upper_bound(const_cast<char*>(static_cast<const char*>(address)));
    if (after == live_.begin()) return;
    const auto& [start, found] = *std::prev(after);
    if (static_cast<const char*>(address) < start + found.bytes && !found.of_graph)
      recording_->use(start, found.number);
  }

  void begin_recording() {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!recording_, "late device: two recordings at a time");
    TORCH_CHECK(current_stream != 0, "late device: the default stream cannot be recorded");
    recording_ = std::make_unique<Recording>(current_stream, ++graphs_);
  }

  /// Null: there was none.
  std::unique_ptr<Recording> end_recording() {
    const std::lock_guard lock(mutex_);
    return std::move(recording_);
  }

  /// Puts a recording into the current stream. Its streams get lanes of their own, as the nodes of a graph run beside
  /// each other where no event orders them.
  void replay(Recording& graph) {
    const std::lock_guard lock(mutex_);
    check();
    for (const auto& [start, number] : graph.used()) {
      const auto now = live_.find(start);
      TORCH_CHECK(now != live_.end() && now->second.number == number,
                  "late device: a graph is replayed that uses memory which was freed after its recording");
    }
    const auto begin = std::make_shared<Mark>();
    push(current_stream, {.reaches = begin});
    std::map<const Mark*, std::shared_ptr<Mark>> fresh;  // marks of this replay
    const auto mark = [&](const std::shared_ptr<Mark>& recorded) -> std::shared_ptr<Mark> {
      if (!recorded) return nullptr;
      auto& made = fresh[recorded.get()];
      if (!made) made = std::make_shared<Mark>();
      return made;
    };
    for (auto& [stream, lane] : graph.lanes()) {
      if (lane.id == 0) lane.id = new_stream();
      push(lane.id, {.awaits = begin});
      for (const Job& job : lane.jobs)
        push(lane.id,
             {.kernel = job.kernel, .name = job.name, .awaits = mark(job.awaits), .reaches = mark(job.reaches)});
      const auto end = std::make_shared<Mark>();
      push(lane.id, {.kernel = [memory = graph.memory()] {}, .reaches = end});  // the memory stays until then
      push(current_stream, {.awaits = end});
      go_on();
    }
    ++counts_.replays;
  }

  Counts counts() {
    const std::lock_guard lock(mutex_);
    Counts out = counts_;
    out.streams = static_cast<std::int64_t>(used_.size());
    return out;
  }

 private:
  /// Lets the device work while the host does, as the dice say.
  void go_on() {
    while (draw(8) < eagerness_)
      if (!step()) break;
  }

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
  FreeBlocks free_;
  struct Live {
    std::size_t bytes = 0;
    std::uint64_t number = 0;
    bool of_graph = false;
  };
  std::map<char*, Live> live_;  // by their start
  std::uint64_t blocks_ = 0;
  std::unique_ptr<Recording> recording_;
  std::uint64_t graphs_ = 0;
  std::set<c10::StreamId> used_;
  Counts counts_;
  std::string failure_;
};

}  // namespace late
