#include "worker/train/agreement.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

namespace worker {
namespace {

/// Besides the losses: weight, tokens, stop, and the three numbers of a trace.
constexpr std::int64_t kOtherColumns = 6;

}  // namespace

AgreementUnderWay::AgreementUnderWay(fsdp::Communicator& ranks, const Agreement& words)
    : columns_(kOtherColumns + static_cast<std::int64_t>(words.losses.size())),
      table_(at::zeros({ranks.world_size() * columns_}, at::kDouble)) {
  auto* own = table_.mutable_data_ptr<double>() + ranks.rank() * columns_;
  own = std::ranges::copy(words.losses, own).out;
  own[0] = words.next_weight;
  own[1] = words.next_tokens;
  own[2] = static_cast<double>(static_cast<int>(words.stop));
  // Exact in doubles: see agent::protocol::kMostTraceNumber.
  own[3] = static_cast<double>(words.trace.number);
  own[4] = static_cast<double>(words.trace.first);
  own[5] = static_cast<double>(words.trace.steps);
  table_ = table_.to(ranks.device());
  pending_ = ranks.all_gather_into(table_);
}

Agreement AgreementUnderWay::wait() {
  if (pending_) pending_->wait();
  const at::Tensor table = table_.to(at::kCPU);
  const auto* row = table.const_data_ptr<double>();
  const std::int64_t ranks = table.numel() / columns_;
  Agreement out;
  out.losses.resize(static_cast<std::size_t>(columns_ - kOtherColumns));
  for (std::int64_t r = 0; r < ranks; ++r, row += kOtherColumns) {
    for (double& loss : out.losses) loss += *row++;
    out.next_weight += row[0];
    out.next_tokens += row[1];
    out.stop = std::max(out.stop, static_cast<agent::rank::StopKind>(static_cast<int>(row[2])));
    // One of several traces is taken, the same on all ranks. The others are passed on again when that trace is over.
    if (const auto number = static_cast<std::uint64_t>(row[3]); number > out.trace.number) {
      out.trace = {number, static_cast<std::int64_t>(row[4]), static_cast<std::int64_t>(row[5])};
    }
  }
  return out;
}

}  // namespace worker
