#include "fsdp/engine/schedule.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fsdp/engine/segment.h"
#include "fsdp/engine/unit.h"

namespace fsdp {

GatherStream::GatherStream(at::Device device) : device_(device) {
  if (device.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

void GatherStream::run(const std::optional<c10::Event>& after, const std::function<void()>& gather) const {
  if (!stream_) return gather();
  if (after) after->block(*stream_);
  const c10::StreamGuard guard(*stream_);
  gather();
}

void GatherStream::mark(std::optional<c10::Event>& event) const {
  if (!stream_) return;
  if (!event) event.emplace(device_.type());
  event->record(current_stream(device_));
}

void GatherStream::wait_for(const std::optional<c10::Event>& event) const {
  if (stream_ && event) event->block(current_stream(device_));
}

void Participation::start(std::vector<Segment*> segments) {
  finish();
  segments_ = std::move(segments);
  std::vector<std::uint8_t> mine;
  for (Segment* segment : segments_) {
    mine.insert(mine.end(), segment->used_here_.begin(), segment->used_here_.end());
    segment->used_anywhere_ = segment->used_here_;
  }
  if (mine.empty() || communicator_.world_size() == 1) return;
  const at::NoGradGuard no_grad;
  flags_ = at::empty({static_cast<std::int64_t>(mine.size())}, at::kBool);
  std::ranges::transform(mine, flags_.mutable_data_ptr<bool>(), [](std::uint8_t flag) { return flag != 0; });
  pending_ = communicator_.start_all_reduce(flags_, "participation of parameters");
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
  const bool* flag = flags_.const_data_ptr<bool>();
  for (Segment* segment : segments_)
    for (std::uint8_t& used : segment->used_anywhere_) used = *flag++ ? 1 : 0;
}

namespace {

bool in_backward_now() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

bool contains(const std::vector<Unit*>& units, const Unit* unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

}  // namespace

Backward::~Backward() {
  if (!ended_) schedule_->abandon_backward();
}

void Backward::end() {
  schedule_->end_backward();
  ended_ = true;
}

Schedule::Run::Run(Schedule& schedule, Unit& unit) : schedule_(schedule), unit_(unit) {
  if (schedule_.depth_ == 0) schedule_.settle();
  ++schedule_.depth_;
  ++unit_.running_;
}

Schedule::Run::~Run() {
  --schedule_.depth_;
  --unit_.running_;
  if (!done_) schedule_.abandon_forward();
}

void Schedule::remove(Unit& unit) {
  units_changed();
  for (auto* units : {&units_, &order_.units, &recording_, &ended_, &ahead_, &backward_order_.units, &entered_})
    units->erase(std::remove(units->begin(), units->end(), &unit), units->end());
  for (Unit** reduced : {&reducing_, &adding_replicas_})
    if (*reduced == &unit) *reduced = nullptr;
}

Communicator* Schedule::shard_group(int ranks) const {
  const auto group = shard_groups_.find(ranks);
  return group == shard_groups_.end() ? nullptr : group->second.get();
}

// [Note: how large the pools are] Units run in the order in which they were made, or nearly so. One unit is gathered
// while those run that are at most `prefetch_depth` before it, so the pool has room for the largest such row. Gradients
// of a unit are laid while those of the unit before are reduced. Room for every two such units would be room for the
// two largest ones, which are often embedding and head. So there is room for the two units in the middle of all such
// pairs, by size, and for the largest unit alone: another pair takes turns, which lay_gradients() sees to. What is in
// use beside that, such as gradients of passes without synchronisation, makes regions of its own. A unit with quantised
// segments takes memory for values only while it runs. Codes of units that are gathered ahead lie in the pool of staged
// memory. A unit has given its own codes back before further ones are gathered, so there is room for `prefetch_depth`
// units in a row, and for the largest one.
std::int64_t Schedule::longest_row(const std::vector<const Unit*>& units, std::int64_t (Unit::*running)() const,
                                   std::int64_t (Unit::*gathered_ahead)() const) {
  std::int64_t row = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const ShardOptions& options = units[i]->options();
    const auto depth = static_cast<std::size_t>(
        std::max(options.prefetch_depth, options.backward_prefetch_depth.value_or(options.prefetch_depth)));
    std::int64_t ahead = running == nullptr ? 0 : (units[i]->*running)(), behind = ahead;
    for (std::size_t k = i + 1; k < units.size() && k <= i + depth; ++k) ahead += (units[k]->*gathered_ahead)();
    for (std::size_t k = i; k-- > (i > depth ? i - depth : 0);) behind += (units[k]->*gathered_ahead)();
    row = std::max({row, ahead, behind});
  }
  return row;
}

void Schedule::size_pools() {
  if (std::exchange(sized_, true)) return;
  std::vector<const Unit*> gathered, staged, reduced;
  for (const Unit* unit : units_) {
    if (unit->gathered_pool_ == gathered_ && unit->gathered_buffer_bytes() > 0) gathered.push_back(unit);
    if (unit->staged_buffer_bytes() > 0) staged.push_back(unit);
    if (unit->gradient_pool_ == gradients_ && unit->gradient_buffer_bytes() > 0) reduced.push_back(unit);
  }
  gathered_->reserve(longest_row(gathered, &Unit::gathered_buffer_bytes, &Unit::ahead_buffer_bytes));
  std::int64_t codes = longest_row(staged, nullptr, &Unit::staged_buffer_bytes);
  for (const Unit* unit : staged) codes = std::max(codes, unit->staged_buffer_bytes());
  staged_->reserve(codes);
  std::int64_t largest = 0;
  std::vector<std::int64_t> pairs;
  for (std::size_t i = 0; i < reduced.size(); ++i) {
    largest = std::max(largest, reduced[i]->gradient_buffer_bytes());
    if (i > 0 && !reduced[i]->options().tight)
      pairs.push_back(reduced[i - 1]->gradient_buffer_bytes() + reduced[i]->gradient_buffer_bytes());
  }
  std::ranges::sort(pairs);
  gradients_->reserve(pairs.empty() ? largest : std::max(largest, pairs[pairs.size() / 2]));
}

std::vector<Unit*> Schedule::Order::following(const Unit& unit, int depth) {
  auto self = std::find(units.begin() + static_cast<std::ptrdiff_t>(reached), units.end(), &unit);
  if (self == units.end()) self = std::find(units.begin(), units.end(), &unit);
  if (self == units.end()) return {};
  reached = static_cast<std::size_t>(self - units.begin()) + 1;
  const auto count = std::min<std::ptrdiff_t>(depth, units.end() - self - 1);
  return {self + 1, self + 1 + std::max<std::ptrdiff_t>(count, 0)};
}

/// Frees what was gathered ahead and is not wanted next. So a changed order holds no more memory than the usual one.
void Schedule::gather_only(const Unit& unit, const std::vector<Unit*>& next) {
  for (Unit* before : ahead_)
    if (before != &unit && !contains(next, before)) before->release();
  ahead_ = next;
}

std::vector<Unit*> Schedule::enter_forward(Unit& unit) {
  if (in_backward_now()) return {};  // a recompute is no new iteration
  const bool known = contains(recording_, &unit);
  if (known && depth_ == 1) {
    order_ = {std::move(recording_)};
    recording_ = {&unit};
  } else if (!known || unit.options().reduce_each_run) {
    recording_.push_back(&unit);
  }
  const int depth = unit.options().prefetch_depth;
  std::vector<Unit*> next = unit.forward_prefetch_ ? *unit.forward_prefetch_ : order_.following(unit, depth);
  gather_only(unit, next);
  return next;
}

void Schedule::leave_forward(Unit& unit, bool recorded) {
  if (!recorded || in_backward_now()) return;
  if (!unit.options().reduce_each_run) std::erase(ended_, &unit);
  ended_.push_back(&unit);
}

std::vector<Unit*> Schedule::enter_backward(Unit& unit) {
  check_whole("backward");
  if (backward_.expired()) {
    entered_.clear();
    backward_order_ = {{ended_.rbegin(), ended_.rend()}};
    const auto backward = std::make_shared<Backward>(shared_from_this());
    backward_ = backward;
    torch::autograd::Engine::get_default_engine().queue_callback([backward] { backward->end(); });
  }
  if (!contains(entered_, &unit)) entered_.push_back(&unit);
  // Such a root enters after the unit whose output it returns, and would free what that one has gathered ahead.
  if (unit.segments().empty()) return {};
  const int depth = unit.options().backward_prefetch_depth.value_or(unit.options().prefetch_depth);
  std::vector<Unit*> next = unit.backward_prefetch_ ? *unit.backward_prefetch_ : backward_order_.following(unit, depth);
  std::erase_if(next, [](const Unit* other) { return !other->options().backward_reads_parameters; });
  gather_only(unit, next);
  return next;
}

void Schedule::admit_reduction(Unit& unit) {
  if (replicas() == nullptr || reducing_ == &unit || adding_replicas_ == &unit) {
    finish_reductions();
  } else {
    if (adding_replicas_ != nullptr) adding_replicas_->finish_reduce();
    adding_replicas_ = reducing_;
    if (adding_replicas_ != nullptr) adding_replicas_->add_replicas();
  }
  reducing_ = &unit;
}

void Schedule::finish_reductions() {
  for (Unit** reduced : {&adding_replicas_, &reducing_})
    if (Unit* unit = std::exchange(*reduced, nullptr)) unit->finish_reduce();
}

void Schedule::end_backward() {
  for (Unit* unit : entered_) unit->leave_backward();
  // Units that this backward did not reach may hold gradients of earlier backward passes without synchronisation.
  if (gradient_sync_) {
    for (Unit* unit : units_) unit->reduce_left_over();
    exchange_participation();
  }
  finish_reductions();
  for (Unit* unit : units_) unit->end_backward();
  trim();
  backward_.reset();
  entered_.clear();
  ended_.clear();
  ahead_.clear();
}

void Schedule::trim() {
  bool any = false;
  for (Unit* unit : units_) {
    if (!unit->options().tight) continue;
    unit->gradient_pool_->trim();
    any = true;
  }
  if (!any) return;
  scratch_->trim();
  ranks_.reduce->trim();
  if (ranks_.replicate) ranks_.replicate->trim();
}

void Schedule::exchange_participation() {
  std::vector<Segment*> trainable;
  for (Unit* unit : units_)
    for (const auto& segment : unit->segments())
      if (segment->key().trainable) trainable.push_back(segment.get());
  participation_.start(std::move(trainable));
}

/// The gradients of a backward that failed are incomplete, so all gradients of the step are dropped.
void Schedule::abandon_backward() {
  participation_.discard();
  for (Unit* unit : units_) unit->abandon();
  failed_ = true;
  reducing_ = adding_replicas_ = nullptr;
  backward_.reset();
  entered_.clear();
  ended_.clear();
  ahead_.clear();
}

void Schedule::abandon_forward() {
  if (depth_ > 0 || in_backward_now()) return;
  for (Unit* unit : units_) unit->discard_gathered();
  ended_.clear();
  ahead_.clear();
}

void Schedule::settle() {
  const auto backward = backward_.lock();
  if (backward == nullptr || in_backward_now() || depth_ > 0) return;
  backward->forget();
  abandon_backward();
}

void Schedule::abandon_step() {
  TORCH_CHECK(depth_ == 0 && !in_backward_now(),
              "abandon_step() inside of a forward or a backward; call it after the exception has left both");
  if (const auto backward = backward_.lock()) backward->forget();
  abandon_backward();
  recording_.clear();
  start_over();
}

void Schedule::check_whole(const char* what) const {
  TORCH_CHECK(!failed_, what,
              ": a backward of this step threw, so the step's gradients are incomplete; call abandon_step() or "
              "zero_grad() and begin the step again");
}

void Schedule::follow_gradients() {
  if (!backward_.expired()) return;
  for (Unit* unit : units_) unit->follow_gradients();
}

void Schedule::check_gradients(const char* what) {
  for (Unit* unit : units_) {
    unit->follow_gradients();
    unit->check_step(what);
  }
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
