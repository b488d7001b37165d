#include "fsdp/optim/average.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>
#include <c10/util/Exception.h>

#include <map>
#include <string>
#include <vector>

namespace fsdp {
namespace {

/// A parameter and the segment that holds it.
struct Held {
  const Segment* segment = nullptr;
  const ParameterInfo* parameter = nullptr;

  Slice slice(int rank) const { return segment->layout().slice(*parameter, rank); }
  at::Tensor own() const {
    const Slice place = segment->layout().own(*parameter);
    return segment->shard().narrow(0, place.shard_offset, place.length);
  }
};

/// Compares the slices of all ranks, so that every rank comes to the same answer.
bool equal_slices(const Held& a, const Held& b) {
  const int ranks = a.segment->layout().world_size();
  if (b.segment->layout().world_size() != ranks) return false;
  for (int rank = 0; rank < ranks; ++rank) {
    const Slice one = a.slice(rank), other = b.slice(rank);
    if (one.begin != other.begin || one.length != other.length) return false;
  }
  return true;
}

/// This rank's slices of the same parameters. Entries correspond.
struct Pairs {
  std::vector<at::Tensor> to, from;
};

/// `what` names the caller.
Pairs pairs_of(const ShardedModel& to, const ShardedModel& from, const char* what) {
  std::map<std::string, Held> held;
  for (const auto& unit : from.units()) {
    unit->check_values(what);
    for (const auto& segment : unit->segments())
      for (const ParameterInfo& parameter : segment->layout().parameters())
        held[parameter.name] = {segment.get(), &parameter};
  }
  Pairs pairs;
  for (const auto& unit : to.units()) {
    for (const auto& segment : unit->segments()) {
      for (const ParameterInfo& parameter : segment->layout().parameters()) {
        const auto found = held.find(parameter.name);
        TORCH_CHECK(found != held.end(), what, ": the other model has no parameter ", parameter.name,
                    "; give a model of the same modules");
        const Held mine{segment.get(), &parameter}, other = found->second;
        TORCH_CHECK(other.parameter->shape == parameter.shape, what, ": ", parameter.name, " is ",
                    at::IntArrayRef(parameter.shape), ", and ", at::IntArrayRef(other.parameter->shape),
                    " in the other model; give a model of the same sizes");
        TORCH_CHECK(equal_slices(mine, other), what, ": ranks hold other slices of ", parameter.name,
                    " than in the other model; shard both into the same units, with the same strategy and the same "
                    "requires_grad");
        if (segment->layout().own(parameter).length == 0) continue;
        pairs.to.push_back(mine.own());
        pairs.from.push_back(other.own());
      }
    }
  }
  return pairs;
}

void changed(const ShardedModel& model) {
  for (const auto& unit : model.units()) unit->shard_changed();
}

}  // namespace

void average_into(ShardedModel& slow, const ShardedModel& fast, double momentum) {
  TORCH_CHECK(momentum >= 0 && momentum <= 1, "average_into: momentum ", momentum, ": want 0 to 1");
  TORCH_CHECK(slow.home() == fast.home(), "average_into: one model lives on ", slow.home(), ", the other on ",
              fast.home(), "; give both the same offload");
  for (const auto& unit : slow.units()) {
    unit->check_values("average_into");
    for (const auto& segment : unit->segments())
      TORCH_CHECK(segment->shard().scalar_type() == at::kFloat, "average_into: parameter ",
                  segment->layout().parameters().front().name, " is kept in ", segment->shard().scalar_type(),
                  ", in which an average stands still; set requires_grad before sharding, and run the model under "
                  "NoGradGuard");
  }
  const Pairs pairs = pairs_of(slow, fast, "average_into");
  const at::NoGradGuard no_grad;
  slow.await_copies();
  // LibTorch wants equal dtypes. Only a parameter that is frozen in the fast model alone needs a copy.
  std::vector<at::Tensor> from;
  for (const at::Tensor& slice : pairs.from) from.push_back(slice.to(at::kFloat));
  if (!from.empty()) at::_foreach_lerp_(pairs.to, from, 1 - momentum);
  changed(slow);
}

void copy_shards(ShardedModel& to, const ShardedModel& from) {
  const Pairs pairs = pairs_of(to, from, "copy_shards");
  const at::NoGradGuard no_grad;
  to.await_copies();
  for (std::size_t i = 0; i < pairs.to.size(); ++i) pairs.to[i].copy_(pairs.from[i]);
  changed(to);
}

}  // namespace fsdp
