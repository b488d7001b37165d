#include <algorithm>

#include "controller/http/answers.h"
#include "controller/http/api.h"
#include "controller/http/handlers.h"
#include "controller/http/routes.h"
#include "controller/service/controller.h"

namespace http {
namespace {

constexpr std::uint32_t kUsualStacks = 16, kMostStacks = 256;

}  // namespace

/// The ranks from `from` on, at most `limit`, with their texts.
Response job_stacks(const Call& call) {
  muster::v1::StacksRequest wanted;
  wanted.set_job_id(call.job);
  wanted.set_attempt(number<core::AttemptNumber>(call.request, "attempt", 0));
  wanted.set_number(number<std::uint64_t>(call.request, "number", 0));
  const auto from = number<std::uint32_t>(call.request, "from", 0);
  const auto limit = number<std::uint32_t>(call.request, "limit", kUsualStacks, kMostStacks);
  auto found = call.controller.stacks(wanted);
  if (!found.ok()) return refusal(found.refusal());
  auto& view = found.value();
  const auto ranks = static_cast<std::uint32_t>(view.ranks_size());
  const auto begin = std::min(from, ranks);
  auto& all = *view.mutable_ranks();
  all.DeleteSubrange(0, static_cast<int>(begin));
  const auto count = static_cast<int>(std::min(limit, ranks - begin));
  all.DeleteSubrange(count, all.size() - count);
  for (auto& rank : all) {
    rank.set_text(call.controller.stack_text({view.job_id(), view.attempt()}, view.shown().number(), rank.rank()));
  }
  return as_json(proto::to_json(view));
}

}  // namespace http
