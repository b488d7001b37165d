#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/rank/environment.h"
#include "agent/rank/reporter.h"
#include "muster/v1/rank_service.pb.h"
#include "spec/series.h"

namespace agent::rank {

/// Steps and checkpoints of one rank that the controller has not acknowledged yet, oldest first, and what is known of
/// the steps' series. Bounded: beyond, the oldest are lost and counted. Not thread-safe.
///
/// A step takes some 70 bytes and each of its values 40 bytes and its name. kMaxSteps of the series of
/// dino, which has most, take up to 114 MB. A step of many series costs more, so kMaxBytes bounds memory whatever is
/// reported. With names of 20 characters that is 92,000 steps of twenty series, or 7,600 steps of spec::kMostSeries.
class GrpcOutbox {
 public:
  static constexpr std::size_t kMaxSteps = 100'000;
  static constexpr std::size_t kMaxBytes = 112 << 20;
  static constexpr std::size_t kMostStepBytes =
      sizeof(StepReport) + spec::kMostSeries * (sizeof(SeriesValue) + spec::kLongestSeries);
  static constexpr std::size_t kMaxCheckpoints = 1'000;
  /// The most reports of each kind in one heartbeat.
  static constexpr std::size_t kBatch = 512;
  /// The most bytes of the steps in one heartbeat, as bytes_of() counts them. A heartbeat has two seconds to arrive.
  static constexpr std::size_t kBatchBytes = 2 << 20;

  /// Which of them a heartbeat carries.
  struct Batch {
    std::uint64_t first_step = 0, first_checkpoint = 0;  // counted since the beginning
    std::size_t steps = 0, checkpoints = 0;
    bool full = false;  // it holds as much as it may, so that more may be waiting
    bool empty() const { return steps == 0 && checkpoints == 0; }
  };

  explicit GrpcOutbox(std::uint32_t rank = 0) : rank_(rank) {}

  /// Replaces what is known of series. Steps that are added later go by it; those that wait travel with it.
  void declare(std::vector<spec::Series> series);

  /// Without the values that are not this rank's to tell: those of series declared as rank 0's, if it is another rank.
  /// Beyond spec::kMostSeries, the last values of the step are left out.
  void add(const StepReport& step);
  void add(const muster::v1::CheckpointSaved& checkpoint);

  /// Puts the oldest of each kind into `request`, and with steps the declared series that this rank reports.
  Batch fill(muster::v1::HeartbeatRequest& request) const { return fill(request, 0, 0); }
  /// Fills `request` in the same way from the numbers `from_step` and `from_checkpoint` on, as Batch counts them.
  Batch fill(muster::v1::HeartbeatRequest& request, std::uint64_t from_step, std::uint64_t from_checkpoint) const;
  /// Forgets the first `steps` and `checkpoints` of `batch`. What was added or lost since it was filled is no matter.
  void acknowledge(const Batch& batch, std::size_t steps, std::size_t checkpoints);

  /// Forgets the steps and checkpoints whose numbers, as Batch counts them, are below these.
  void acknowledge_until(std::uint64_t step, std::uint64_t checkpoint);
  /// Nothing of `batch` waits any more.
  bool is_acknowledged(const Batch& batch) const {
    return first_step_ >= batch.first_step + batch.steps &&
           first_checkpoint_ >= batch.first_checkpoint + batch.checkpoints;
  }

  /// One more step, of whatever size, or one more checkpoint costs the oldest.
  bool is_full() const {
    return steps_.size() >= kMaxSteps || bytes_ + kMostStepBytes > kMaxBytes || checkpoints_.size() >= kMaxCheckpoints;
  }
  std::size_t waiting() const { return steps_.size() + checkpoints_.size(); }
  /// True if one heartbeat holds all.
  bool fits_one_batch() const {
    return steps_.size() <= kBatch && bytes_ <= kBatchBytes && checkpoints_.size() <= kBatch;
  }
  /// Steps lost since the beginning.
  std::uint64_t lost() const { return lost_; }

  /// Bytes that a step takes in memory; on the wire it takes fewer.
  static std::size_t bytes_of(const StepReport& step);

 private:
  bool is_told(const spec::Series& series) const;
  bool is_told(const std::string& series) const;
  void drop_steps_below(std::uint64_t until);

  std::uint32_t rank_;
  std::vector<spec::Series> series_;
  std::deque<StepReport> steps_;
  std::size_t bytes_ = 0;  // of steps_
  std::deque<muster::v1::CheckpointSaved> checkpoints_;
  std::uint64_t first_step_ = 0, first_checkpoint_ = 0;
  std::uint64_t lost_ = 0;
};

/// Facts that a rank tells of itself, in the words of the wire.

/// The reason as protobuf takes it, at most 2,000 bytes. A message with one byte that is not UTF-8 would be refused for
/// ever.
std::string fit_reason(std::string_view text);
muster::v1::Section wire(Section section);
/// A checkpoint that is complete now. `took_ms`: how long saving it took.
muster::v1::CheckpointSaved wire(const std::string& path, std::int64_t step, std::int64_t bytes, double took_ms);
/// News that a heartbeat tells besides the reports that it carries.
struct RankNews {
  std::int64_t step = 0;  // newest step done
  double step_ms = 0;
  Section section = Section::kInit;
  std::optional<std::int64_t> resumed_from = {};
  ProgramWords words = {};
};
/// All of `news` but what the program says of itself.
void write(const RankNews& news, muster::v1::HeartbeatRequest& to);
/// The words of a program about itself, with texts as protobuf takes them, each of bounded length.
muster::v1::ProgramWords wire(const ProgramWords& words);
/// How a trace stands.
muster::v1::TraceReport wire(const TraceReport& report);
/// Throws std::invalid_argument naming the variable when the environment has no job or attempt.
muster::v1::RankKey key_of(const RankEnvironment& environment);
/// Throws std::invalid_argument when the environment has no controller.
ControllerPlace controller_of(const RankEnvironment& environment);

}  // namespace agent::rank
