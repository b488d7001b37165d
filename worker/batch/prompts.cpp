#include "worker/batch/prompts.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "worker/batch/document.h"

namespace worker {
namespace {

/// The tokens from `begin` on.
std::vector<std::int64_t> rest_of(const data::format::Ids& ids, std::int64_t begin) {
  return framed({}, ids, begin, ids.size - begin);
}

Prompt continuation(const data::format::Dataset& split, std::int64_t record, const Frame& frame, std::int64_t room,
                    const PromptOptions& options) {
  const auto ids = split.ids(record, 0);
  auto cut = ids.size / 2;
  if (options.cut) {
    const auto all = rest_of(ids, 0);
    cut = options.cut(record, std::vector<std::uint32_t>(all.begin(), all.end()));
    if (cut < 0 || cut > ids.size) {
      throw std::logic_error("a prompt of " + std::to_string(cut) + " tokens of a record of " +
                             std::to_string(ids.size));
    }
  }
  cut = std::min(cut, room);
  Prompt out{.record = record, .ids = framed(frame, ids, 0, cut), .rest = rest_of(ids, cut)};
  if (out.ids.empty()) out.ids.push_back(split.description().eos.value_or(0));
  return out;
}

Prompt question(const data::format::Dataset& split, std::int64_t record, const Frame& frame, std::int64_t room) {
  const auto input = split.ids(record, 0);
  return {.record = record,
          .ids = framed(frame, input, 0, std::min(input.size, room)),
          .rest = rest_of(split.ids(record, 1), 0)};
}

}  // namespace

std::vector<Prompt> prompts_of(const data::format::Dataset& split, int rank, int world_size,
                               const PromptOptions& options) {
  const auto kind = split.description().kind;
  const bool pairs = kind == data::format::Kind::kPairs;
  if (!pairs && kind != data::format::Kind::kTokens) {
    throw std::logic_error("prompts of data of kind " + std::string(data::format::name_of(kind)));
  }
  Frame frame = frame_of(split.description());
  if (!pairs) frame.suffix.clear();  // the text goes on
  const auto room = room_in(options.most, frame, "data.sequence_length");
  const auto records = std::min(options.samples, split.records());
  std::vector<Prompt> out;
  for (std::int64_t first = 0; first < records; first += world_size) {
    const bool counts = first + rank < records;
    const auto record = counts ? first + rank : 0;
    out.push_back(pairs ? question(split, record, frame, room) : continuation(split, record, frame, room, options));
    out.back().counts = counts;
  }
  return out;
}

}  // namespace worker
