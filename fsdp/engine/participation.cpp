#include "fsdp/engine/participation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "fsdp/engine/segment.h"

namespace fsdp {

void Participation::start(std::vector<Segment*> segments) {
  finish();
  segments_ = std::move(segments);
  std::vector<std::uint8_t> mine;
  for (Segment* segment : segments_) {
    mine.insert(mine.end(), segment->used_here_.begin(), segment->used_here_.end());
    segment->used_anywhere_ = segment->used_here_;
  }
  if (mine.empty() || communicator_.world_size() == 1) return;
  const auto count = static_cast<std::int64_t>(mine.size());
  const at::NoGradGuard no_grad;
  table_ = at::zeros({communicator_.world_size() * count}, at::kByte);
  std::memcpy(table_.mutable_data_ptr<std::uint8_t>() + communicator_.rank() * count, mine.data(), mine.size());
  pending_ = communicator_.all_gather_into(table_, "participation of parameters");
}

void Participation::finish() {
  if (!pending_) return;
  const std::unique_ptr<Pending> pending = std::move(pending_);
  pending->wait();
  const auto whole = [](const Segment* segment) {
    const auto& used = segment->used_here_;
    return std::all_of(used.begin(), used.end(), [](std::uint8_t flag) { return flag != 0; });
  };
  if (std::all_of(segments_.begin(), segments_.end(), whole)) return;
  const auto* flag = table_.const_data_ptr<std::uint8_t>();
  for (int rank = 0; rank < communicator_.world_size(); ++rank)
    for (Segment* segment : segments_)
      for (std::uint8_t& used : segment->used_anywhere_) used |= *flag++;
}

}  // namespace fsdp
