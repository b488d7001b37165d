#include "fsdp/optim/average.h"

#include <map>
#include <string>
#include <vector>

namespace fsdp {
namespace {

/// Compares the slices of all ranks, so that every rank comes to the same answer.
bool equal_slices(const PlacedParameter& a, const PlacedParameter& b) {
  const int ranks = a.segment.layout().world_size();
  if (b.segment.layout().world_size() != ranks) return false;
  for (int rank = 0; rank < ranks; ++rank) {
    const Slice one = a.segment.layout().slice(a.info, rank), other = b.segment.layout().slice(b.info, rank);
    if (one.begin != other.begin || one.length != other.length) return false;
  }
  return true;
}

at::Tensor own_slice(const PlacedParameter& placed) {
  return placed.segment.layout().own(placed.info).in(placed.segment.shard());
}

/// This rank's slices of the same parameters. Entries correspond.
struct Pairs {
  std::vector<at::Tensor> to, from;
};

/// `what` names the caller.
Pairs pairs_of(const ShardedModel& to, const ShardedModel& from, const char* what) {
  for (const auto& unit : from.units()) unit->check_values(what);
  std::map<std::string, PlacedParameter> held;
  for (const PlacedParameter& parameter : from.parameters()) held.emplace(parameter.info.name, parameter);
  Pairs pairs;
  for (const PlacedParameter& mine : to.parameters()) {
    const ParameterInfo& parameter = mine.info;
    const auto found = held.find(parameter.name);
    TORCH_CHECK(found != held.end(), what, ": the other model has no parameter ", parameter.name,
                "; give a model of the same modules");
    const PlacedParameter& other = found->second;
    TORCH_CHECK(other.info.shape == parameter.shape, what, ": ", parameter.name, " is ",
                at::IntArrayRef(parameter.shape), ", and ", at::IntArrayRef(other.info.shape),
                " in the other model; give a model of the same sizes");
    TORCH_CHECK(equal_slices(mine, other), what, ": ranks hold other slices of ", parameter.name,
                " than in the other model; shard both into the same units, with the same strategy and the same "
                "requires_grad");
    for (const Segment* segment : {&mine.segment, &other.segment})
      TORCH_CHECK(!segment->is_quantised(), what, ": ", parameter.name, " is kept in ", name_of(segment->key().format),
                  " in one of the models; leave it out of ShardOptions::frozen_format");
    if (mine.segment.layout().own(parameter).length == 0) continue;
    pairs.to.push_back(own_slice(mine));
    pairs.from.push_back(own_slice(other));
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
