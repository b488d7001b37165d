#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "controller/core/job.h"
#include "muster/v1/rank_service.pb.h"

namespace ranks {

/// Which steps a trace is to hold. Its number tells it from others.
struct TraceWish {
  std::uint64_t number = 0;
  core::Step first = 0;  // 0: the next step that all ranks can record
  std::uint32_t steps = 1;
};
muster::v1::TraceWish wire(const TraceWish& wish);

/// The facts that one rank has told of a trace.
struct TracedRank {
  bool has_spoken = false;  // the ranks have agreed on it
  bool is_over = false;
  std::vector<core::Step> steps_written;
  std::string problem;
};

/// A trace that a person has asked for.
struct StepTrace {
  TraceWish wish;
  std::string user;      // who asked; empty: a controller before this one was asked
  core::Step first = 0;  // what the ranks have agreed on; 0: nothing yet
  std::vector<TracedRank> ranks;
  bool is_over() const;
};

/// The traces of one attempt: which are wished, and how far the ranks are.
///
/// A wish goes to each rank with the answers to its heartbeats, until the rank has said that the ranks agreed. They
/// agree on a step among themselves, so one rank that has heard is enough. Nothing here is stored. A controller that
/// was restarted learns from the ranks' first heartbeats which trace they are at, and whoever waits asks again with the
/// same number. Not thread-safe.
class StepTraces {
 public:
  /// The newest are kept, so that an earlier request can be asked for again.
  static constexpr std::size_t kKept = 16;

  explicit StepTraces(std::uint32_t ranks) : ranks_(ranks) {}

  /// Notes the rank's report on its newest trace; null: its program cannot record. True: the report is news.
  bool said(core::RankNumber rank, const muster::v1::TraceReport* report);
  /// The wish that the rank is to be told; nullopt: none.
  std::optional<TraceWish> wish_for(core::RankNumber rank) const;

  /// Does nothing if the number is known.
  void ask(const TraceWish& wish, const std::string& user);
  const StepTrace* find(std::uint64_t number) const;
  /// One that is not over; null: there is none.
  const StepTrace* under_way() const;
  /// A rank that has spoken and cannot record.
  std::optional<core::RankNumber> unable() const;

 private:
  enum class Able : std::uint8_t { kUnknown, kYes, kNo };
  StepTrace& add(const TraceWish& wish, const std::string& user);
  bool give_up(core::RankNumber rank);

  std::uint32_t ranks_;
  std::vector<Able> able_;  // empty until a rank has spoken
  std::deque<StepTrace> traces_;
};

}  // namespace ranks
