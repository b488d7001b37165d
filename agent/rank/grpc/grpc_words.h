#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/rank/environment.h"
#include "agent/rank/reporter.h"
#include "muster/v1/rank_service.pb.h"

namespace agent::rank {

/// What a rank tells of itself, in the words of the wire.

/// The reason as protobuf takes it, at most 2,000 bytes. A message with one byte that is not UTF-8 would be refused for
/// ever.
std::string fit_reason(std::string_view text);
muster::v1::Section wire(Section section);
/// A checkpoint that is complete now. `took_ms`: how long saving it took.
muster::v1::CheckpointSaved wire(const std::string& path, std::int64_t step, std::int64_t bytes, double took_ms);
/// The name of a section for which the wire has no word; empty: it has one.
std::string wire_name(Section section);
/// What a heartbeat says besides the reports that it carries.
struct RankNews {
  std::int64_t step = 0;  // newest step done
  double step_ms = 0;
  Section section = Section::kInit;
  std::optional<std::int64_t> resumed_from = {};
  ProgramWords words = {};
};
/// All of `news` but what the program says of itself.
void write(const RankNews& news, muster::v1::HeartbeatRequest& to);
/// What a program says of itself, with texts as protobuf takes them, each of bounded length.
muster::v1::ProgramWords wire(const ProgramWords& words);
/// How a trace stands.
muster::v1::TraceReport wire(const TraceReport& report);
/// Throws std::invalid_argument naming the variable when the environment has no job or attempt.
muster::v1::RankKey key_of(const RankEnvironment& environment);
/// Throws std::invalid_argument when the environment has no controller.
Endpoint controller_of(const RankEnvironment& environment);

}  // namespace agent::rank
