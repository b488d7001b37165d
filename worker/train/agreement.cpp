#include "train/agreement.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>

namespace worker {
namespace {

constexpr std::int64_t kAgreementColumns = 6;

}  // namespace

AgreementUnderWay::AgreementUnderWay(fsdp::Communicator& ranks, const Agreement& words)
    : table_(at::zeros({ranks.world_size() * kAgreementColumns}, at::kDouble)) {
  auto* own = table_.mutable_data_ptr<double>() + ranks.rank() * kAgreementColumns;
  own[0] = words.loss;
  own[1] = words.next_weight;
  own[2] = static_cast<double>(static_cast<int>(words.stop));
  // Exact in doubles: see contract::kMostTraceNumber.
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
  const std::int64_t ranks = table.numel() / kAgreementColumns;
  Agreement out;
  for (std::int64_t r = 0; r < ranks; ++r, row += kAgreementColumns) {
    out.loss += row[0];
    out.next_weight += row[1];
    out.stop = std::max(out.stop, static_cast<StopKind>(static_cast<int>(row[2])));
    // Of several, the same one on all ranks. The others are passed on again when it is over.
    if (const auto number = static_cast<std::uint64_t>(row[3]); number > out.trace.number) {
      out.trace = {number, static_cast<std::int64_t>(row[4]), static_cast<std::int64_t>(row[5])};
    }
  }
  return out;
}

}  // namespace worker
