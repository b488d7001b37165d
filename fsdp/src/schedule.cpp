#include "schedule.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "fsdp/unit.h"

namespace fsdp {

std::vector<Unit*> Schedule::following(const std::vector<Unit*>& order, const Unit& unit) const {
  const auto self = std::find(order.begin(), order.end(), &unit);
  if (self == order.end()) return {};
  const auto count = std::min<std::ptrdiff_t>(unit.options().prefetch_depth, order.end() - self - 1);
  return {self + 1, self + 1 + std::max<std::ptrdiff_t>(count, 0)};
}

std::vector<Unit*> Schedule::enter_forward(Unit& unit) {
  const bool known = std::find(recording_.begin(), recording_.end(), &unit) != recording_.end();
  if (known && depth_ == 0) {
    order_ = std::move(recording_);
    recording_ = {&unit};
  } else if (!known) {
    recording_.push_back(&unit);
  }
  return following(order_, unit);
}

void Schedule::leave_forward(Unit& unit, bool recorded) {
  if (!recorded) return;
  const auto before = std::find(ended_.begin(), ended_.end(), &unit);
  if (before != ended_.end()) ended_.erase(before);
  ended_.push_back(&unit);
}

std::vector<Unit*> Schedule::enter_backward(Unit& unit) {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task != graph_task_) {
    graph_task_ = task;
    entered_.clear();
    backward_order_.assign(ended_.rbegin(), ended_.rend());
    torch::autograd::Engine::get_default_engine().queue_callback([this] { end_backward(); });
  }
  if (std::find(entered_.begin(), entered_.end(), &unit) == entered_.end()) entered_.push_back(&unit);
  return following(backward_order_, unit);
}

void Schedule::admit_reduction(Unit& unit) {
  if (reducing_ != nullptr) reducing_->finish_reduce();
  reducing_ = &unit;
}

void Schedule::end_backward() {
  for (Unit* unit : entered_) unit->leave_backward();
  // Units that this backward did not reach may hold gradients of earlier backward passes without synchronisation.
  if (gradient_sync_)
    for (Unit* unit : units_) unit->reduce_left_over();
  if (reducing_ != nullptr) reducing_->finish_reduce();
  reducing_ = nullptr;
  for (Unit* unit : units_) unit->end_backward();
  entered_.clear();
  ended_.clear();
  graph_task_ = -1;
}

void Schedule::count_gathered(std::int64_t bytes) {
  gathered_now_ += bytes;
  gathered_peak_ = std::max(gathered_peak_, gathered_now_);
}

void Schedule::count_unreduced(std::int64_t bytes) {
  unreduced_now_ += bytes;
  unreduced_peak_ = std::max(unreduced_peak_, unreduced_now_);
}

}  // namespace fsdp
