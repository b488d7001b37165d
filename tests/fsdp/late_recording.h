#pragma once
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// Records that the pretend GPU keeps of a graph. The rules are those of CUDA's stream capture.
namespace late {

/// A place in a stream.
struct Mark {
  bool reached = false;
  std::int64_t when = 0;                         // how many jobs the device had done
  std::uint64_t graph = 0;                       // the graph that it lies in; 0: none
  std::map<c10::StreamId, std::size_t> after{};  // of a graph: how many jobs of each stream come before it
};

/// The next work of a stream: a kernel, or the wait for a mark, or a mark to reach.
struct Job {
  std::function<void()> kernel = {};
  std::string name = {};  // of the kernel
  std::shared_ptr<Mark> awaits = {}, reaches = {};
  std::int64_t number = 0;
};

using FreeBlocks = std::map<std::pair<c10::StreamId, std::size_t>, std::vector<void*>>;

/// Memory that was allocated while a graph was recorded. It stays as long as the graph or one of its tensors lives.
struct OwnMemory {
  OwnMemory() = default;
  ~OwnMemory() {
    for (void* start : all) std::free(start);
  }
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  void add(void* start, std::size_t of) {
    all.push_back(start);
    bytes += of;
  }
  std::vector<void*> all;
  std::size_t bytes = 0;  // of all
  FreeBlocks free;
};

/// The jobs of a graph, from the begin of its recording on. A stream comes in by waiting for a mark of the graph.
class Recording {
 public:
  struct Lane {
    std::vector<Job> jobs;
    std::map<c10::StreamId, std::size_t> after;  // jobs of other streams that come before the next one
    std::size_t to_join = 0;  // that many jobs must come before the end; what fills freed memory need not
    c10::StreamId id = 0;     // of the stream that replays it
  };

  Recording(c10::StreamId origin, std::uint64_t number) : origin_(origin), number_(number) { lanes_[origin]; }

  bool holds(c10::StreamId stream) const { return lanes_.contains(stream); }
  void add(c10::StreamId stream, Job job) {
    add_free(stream, std::move(job));
    lanes_[stream].to_join = lanes_[stream].jobs.size();
  }
  /// Adds a job that fills memory that is freed. CUDA's graph has no node for such a job.
  void add_free(c10::StreamId stream, Job job) {
    Lane& lane = lanes_[stream];
    lane.jobs.push_back(std::move(job));
    lane.after[stream] = lane.jobs.size();
  }
  void record(c10::StreamId stream, const std::shared_ptr<Mark>& mark) {
    add(stream, {.reaches = mark});
    mark->graph = number_;
    mark->after = lanes_[stream].after;
  }
  /// False: neither the stream nor the mark belongs to the graph.
  bool blocks(c10::StreamId stream, const std::shared_ptr<Mark>& mark) {
    if (mark->graph != number_) {
      TORCH_CHECK(!holds(stream), "late device: work of a graph waits for work outside of it");
      return false;
    }
    Lane& lane = lanes_[stream];
    for (const auto& [other, jobs] : mark->after) lane.after[other] = std::max(lane.after[other], jobs);
    add(stream, {.awaits = mark});
    return true;
  }
  /// Memory from before the recording that a job uses.
  void use(char* start, std::uint64_t number) { used_[start] = number; }

  /// Throws c10::Error unless the recorded stream waits for all others in the end.
  void check_joined(c10::StreamId stream) {
    TORCH_CHECK(stream == origin_, "late device: a recording ends on another stream than it began on");
    for (const auto& [other, lane] : lanes_)
      TORCH_CHECK(lanes_[origin_].after[other] >= lane.to_join, "late device: a recording ends, and stream ", other,
                  " was not waited for");
  }

  std::map<c10::StreamId, Lane>& lanes() { return lanes_; }
  const std::map<char*, std::uint64_t>& used() const { return used_; }
  const std::shared_ptr<OwnMemory>& memory() const { return memory_; }

 private:
  const c10::StreamId origin_;
  const std::uint64_t number_;
  std::map<c10::StreamId, Lane> lanes_;
  std::map<char*, std::uint64_t> used_;  // number of the block, by its start
  std::shared_ptr<OwnMemory> memory_ = std::make_shared<OwnMemory>();
};

}  // namespace late
