#include "worker/train/agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <span>

namespace worker {
namespace {

using agent::rank::StopKind;
using agent::rank::TraceWish;

/// Besides the losses: weight, tokens, how many ranks are asked to save or to leave at once, and how many have heard of
/// a trace.
constexpr std::int64_t kOtherSums = 5;

/// One of several traces is taken, the same on all ranks. The others are passed on again when that trace is over.
TraceWish newest_trace(fsdp::Communicator& ranks, const TraceWish& mine) {
  // Exact in doubles: see agent::protocol::kMostTraceNumber.
  const at::Tensor own =
      at::tensor({static_cast<double>(mine.number), static_cast<double>(mine.first), static_cast<double>(mine.steps)},
                 at::kDouble);
  const std::int64_t columns = own.numel();
  at::Tensor table = at::empty({ranks.world_size() * columns}, own.options().device(ranks.device()));
  ranks.gather(table, own, "traces that ranks have heard of");
  table = table.to(at::kCPU);
  TraceWish newest;
  const auto* row = table.const_data_ptr<double>();
  for (int rank = 0; rank < ranks.world_size(); ++rank, row += columns)
    if (const auto number = static_cast<std::uint64_t>(row[0]); number > newest.number)
      newest = {number, static_cast<std::int64_t>(row[1]), static_cast<std::int64_t>(row[2])};
  return newest;
}

}  // namespace

AgreementUnderWay::AgreementUnderWay(fsdp::Communicator& ranks, const Agreement& words)
    : ranks_(&ranks),
      mine_(words.trace),
      sums_(at::zeros({static_cast<std::int64_t>(words.losses.size()) + kOtherSums}, at::kDouble)) {
  auto* sum = std::ranges::copy(words.losses, sums_.mutable_data_ptr<double>()).out;
  *sum++ = words.next_weight;
  *sum++ = words.next_tokens;
  *sum++ = words.stop == StopKind::kSave ? 1 : 0;
  *sum++ = words.stop == StopKind::kNow ? 1 : 0;
  *sum++ = words.trace.number > 0 ? 1 : 0;
  sums_ = sums_.to(ranks.device());
  pending_ = ranks.start_all_reduce(sums_, "agreement on a step");
}

Agreement AgreementUnderWay::wait() {
  pending_->wait();
  const at::Tensor sums = sums_.to(at::kCPU);
  const std::span all(sums.const_data_ptr<double>(), static_cast<std::size_t>(sums.numel()));
  const auto losses = all.first(all.size() - kOtherSums), others = all.last(kOtherSums);
  Agreement out;
  out.losses.assign(losses.begin(), losses.end());
  out.next_weight = others[0];
  out.next_tokens = others[1];
  out.stop = others[3] > 0 ? StopKind::kNow : others[2] > 0 ? StopKind::kSave : StopKind::kNone;
  if (others[4] > 0) out.trace = newest_trace(*ranks_, mine_);
  return out;
}

}  // namespace worker
