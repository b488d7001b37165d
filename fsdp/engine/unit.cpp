#include "fsdp/engine/unit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "fsdp/comm/buffer_pool.h"
#include "fsdp/engine/schedule.h"

namespace fsdp {

/// A whole parameter on its way into a segment, with the states that belong to it.
struct Unit::Whole {
  at::Tensor value;
  bool has_master = false;
  struct State {
    StateForm form;
    at::Tensor values;  // flat
  };
  std::map<std::string, State> states = {};
};

Unit::Unit(std::string name, std::vector<ParameterInfo> infos, std::vector<at::Tensor> parameters,
           std::shared_ptr<Schedule> schedule, const ShardOptions& options)
    : name_(std::move(name)),
      infos_(std::move(infos)),
      parameters_(std::move(parameters)),
      schedule_(std::move(schedule)),
      options_(options) {
  // A unit that stays gathered while others run would take the memory of those that come and go.
  const auto own_pool = [](const Communicator& of) {
    return std::make_shared<BufferPool>(of.device(), of.peer_memory());
  };
  const bool stays = !options_.reshard_after_forward && !options_.runs_last;
  const bool keeps = stays || !options_.reshard_after_backward;
  gathered_pool_ = keeps ? own_pool(schedule_->communicator()) : schedule_->gathered_pool();
  gradient_pool_ = stays ? own_pool(schedule_->reduce()) : schedule_->gradient_pool();
  const double divisor = options_.precision.gradient_divide_factor.value_or(1);
  TORCH_CHECK(divisor > 0 && std::isfinite(divisor), "unit ", name_, ": gradient_divide_factor ", divisor,
              ": want a finite number above 0");
  const at::ScalarType output = options_.precision.output_dtype.value_or(at::kFloat);
  TORCH_CHECK(is_format(output), "unit ", name_, ": output_dtype must be float32, bfloat16 or float16, got ", output);
  for (const int depth : {options_.prefetch_depth, options_.backward_prefetch_depth.value_or(0)})
    TORCH_CHECK(depth >= 0, "unit ", name_, ": prefetch_depth ", depth, ": want 0 or more");
  TORCH_CHECK(parameters_.size() == infos_.size(), "unit ", name_, ": ", infos_.size(), " places for ",
              parameters_.size(), " parameters");
  take_parameters();
  TORCH_CHECK(options_.reshard_to_ranks == 0 || !options_.reshard_after_forward || !is_staged(), "unit ", name_,
              ": reshard_to_ranks ", options_.reshard_to_ranks,
              " with parameters that are kept in a frozen_format: parts "
              "would be of their values, which are larger than the codes of all ranks; set reshard_to_ranks to 0");
  schedule_->add(*this);
}

Unit::~Unit() {
  schedule_->remove(*this);
}

// How parameters come into segments, and move between segments when requires_grad changes.

void Unit::take_parameters() {
  std::vector<Whole> values;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    infos_[i].index = i;
    has_values_.push_back(!parameters_[i].is_meta());
    values.push_back({parameters_[i].detach(), parameters_[i].requires_grad(), {}});
  }
  const at::NoGradGuard no_grad;
  make_segments(values);
}

SegmentKey Unit::key_of(std::size_t parameter, bool has_master) const {
  const bool trainable = parameters_[parameter].requires_grad();
  const Precision& precision = options_.precision;
  const at::ScalarType dtype =
      precision.param_dtype_of ? precision.param_dtype_of(infos_[parameter]) : precision.param_dtype;
  for (const at::ScalarType type : {dtype, precision.reduce_dtype})
    TORCH_CHECK(is_format(type), "unit ", name_, ": parameter ", infos_[parameter].name,
                ": param_dtype and reduce_dtype must be float32, bfloat16 or float16, got ", type);
  const bool frozen = !trainable && !has_master;
  return {.trainable = trainable,
          .has_master = !frozen,
          .format = frozen && options_.frozen_format ? options_.frozen_format(infos_[parameter]) : FrozenFormat::kPlain,
          .param_dtype = dtype,
          .reduce_dtype = precision.reduce_dtype,
          .gradient_divide_factor = precision.gradient_divide_factor,
          .offload = options_.offload};
}

void Unit::make_segments(const std::vector<Whole>& values) {
  std::map<SegmentKey, std::vector<std::size_t>, std::greater<>> groups;  // trainable ones first
  for (std::size_t i = 0; i < parameters_.size(); ++i) groups[key_of(i, values[i].has_master)].push_back(i);
  std::map<SegmentKey, std::unique_ptr<Segment>> quantised;  // their parameters never move
  for (auto& segment : segments_)
    if (segment->is_quantised()) quantised[segment->key()] = std::move(segment);
  segments_.clear();
  has_part_ = false;
  Communicator& ranks = schedule_->communicator();
  const SegmentRanks partners{&ranks, &schedule_->reduce(), schedule_->replicas(),
                              schedule_->shard_group(options_.reshard_to_ranks)};
  bool resident = true;
  for (const auto& [key, members] : groups) {
    if (const auto kept = quantised.find(key); kept != quantised.end()) {
      segments_.push_back(std::move(kept->second));
      resident = false;
      continue;
    }
    std::vector<ParameterInfo> infos;
    std::vector<at::Tensor> parameters;
    for (const std::size_t i : members) {
      infos.push_back(infos_[i]);
      parameters.push_back(parameters_[i]);
    }
    const std::int64_t alignment = std::lcm(options_.alignment, block_of(key.format));
    UnitLayout layout(std::move(infos), ranks.world_size(), ranks.rank(), alignment);
    auto segment = std::make_unique<Segment>(key, std::move(layout), std::move(parameters), partners, name_);
    for (std::size_t p = 0; p < members.size(); ++p) {
      const Whole& whole = values[members[p]];
      if (!whole.value.is_meta()) segment->store(p, whole.value);
      for (const auto& [name, state] : whole.states) {
        segment->state(name, state.form);
        segment->store_state(name, p, state.values);
      }
    }
    segment->take_over_parameters();
    resident = resident && segment->shard_is_parameter();
    segments_.push_back(std::move(segment));
  }
  state_ = resident ? State::kUnsharded : State::kSharded;
  schedule_->gather_stream().mark(values_ready_);
  schedule_->units_changed();
}

std::vector<Unit::Whole> Unit::gather_values() {
  std::vector<Whole> values(parameters_.size());
  Communicator& ranks = schedule_->communicator();
  for (const auto& segment : segments_) {
    if (segment->is_quantised()) continue;  // it stays as it is
    const UnitLayout& layout = segment->layout();
    const auto gather = [&](const at::Tensor& flat) {
      at::Tensor buffer = at::empty({flat.numel() * layout.world_size()}, flat.options().device(ranks.device()));
      ranks.gather(buffer, flat, name_);
      return buffer;
    };
    const at::Tensor shards = gather(segment->shard());
    for (const ParameterInfo& info : layout.parameters()) {
      values[info.index].value = info.in(shards);
      values[info.index].has_master = segment->key().has_master;
    }
    for (const auto& [name, flat] : segment->states()) {
      const StateForm& form = segment->form(name);
      if (form.replicated) {
        for (const ParameterInfo& info : layout.parameters())
          if (form.is_of(info)) values[info.index].states[name] = {form, layout.own_state(form, info).in(flat)};
        continue;
      }
      const at::Tensor states = gather(segment->spread_state(name));
      for (const ParameterInfo& info : layout.parameters())
        values[info.index].states[name] = {form, states.narrow(0, info.offset / form.block, form.values(info.numel))};
    }
  }
  return values;
}

/// Moves parameters whose requires_grad has changed to their segment. While the unit holds gradients a frozen parameter
/// waits; it gets no gradient, so the optimizer leaves it alone.
void Unit::follow_requires_grad() {
  bool changed = false;
  const ParameterInfo* unfrozen = nullptr;
  for (const auto& segment : segments_) {
    segment->check_owned();
    for (std::size_t i = 0; i < segment->parameters_.size(); ++i) {
      const bool trainable = segment->parameters_[i].requires_grad();
      if (trainable == segment->key().trainable) continue;
      TORCH_CHECK(!segment->is_quantised(), "unit ", name_, ": requires_grad of ",
                  segment->layout().parameters()[i].name, " was set, and the parameter is kept in ",
                  name_of(segment->key().format),
                  ", in which nothing trains; set requires_grad before sharding, or give the parameter "
                  "FrozenFormat::kPlain in ShardOptions::frozen_format");
      changed = true;
      if (trainable) unfrozen = &segment->layout().parameters()[i];
    }
  }
  if (!changed) return;
  follow_gradients();
  if (has_gradient() || has_unreduced()) {
    TORCH_CHECK(unfrozen == nullptr || !at::GradMode::is_enabled(), "unit ", name_, ": requires_grad of ",
                unfrozen->name,
                " was set in the middle of a step; set it before the step's first forward, after zero_grad()");
    return;
  }
  const at::NoGradGuard no_grad;
  schedule_->participation().finish();  // it refers to the segments
  const std::vector<Whole> values = gather_values();
  free_gathered();
  make_segments(values);
  ++parameter_version_;
}

bool Unit::follows_requires_grad() const {
  for (const auto& segment : segments_)
    for (const at::Tensor& parameter : segment->parameters_)
      if (parameter.requires_grad() != segment->key().trainable) return false;
  return true;
}

/// Frees the gathered parameters after a run.
void Unit::leave_gathered(bool backward_will_come) {
  if (backward_will_come && options_.reshard_to_ranks > 0) keep_part();
  free_gathered();
}

void Unit::keep_part() {
  if (has_part_) return;
  const at::NoGradGuard no_grad;
  std::vector<c10::DataPtr> memory =
      take(*schedule_->part_pool(), [](const Segment& segment) { return segment.part_bytes(); });
  for (std::size_t i = 0; i < segments_.size(); ++i) segments_[i]->keep_part(std::move(memory[i]));
  schedule_->gather_stream().mark(values_ready_);
  has_part_ = true;
}

void Unit::drop_part() {
  if (!has_part_) return;
  for (const auto& segment : segments_) segment->drop_part();
  has_part_ = false;
}

void Unit::gather_with(const std::vector<Unit*>& next, bool itself) {
  if (itself) {
    unshard();
    wait_unsharded();
  }
  for (Unit* unit : next) {
    if (unit->state_ != State::kSharded) continue;
    unit->unshard();
    ++unit->prefetches_;
  }
}

void Unit::lay_gradients() {
  // One backward may enter the unit twice. Autograd must not add to a buffer that is being sent.
  finish_reduce();
  schedule_->size_pools();
  const auto wanted = [](const Segment& s) { return s.key().trainable && !s.has_gradients_ ? s.gradient_bytes() : 0; };
  // The reduction before this one has the memory, where the two together would take more than two usual units.
  if (options_.tight || !gradient_pool_->has_room(buffer_bytes(wanted))) schedule_->finish_reductions();
  const at::NoGradGuard no_grad;
  const std::int64_t before = gradient_bytes_now();
  std::vector<c10::DataPtr> memory = take(*gradient_pool_, wanted);
  for (std::size_t i = 0; i < segments_.size(); ++i)
    if (segments_[i]->key().trainable) segments_[i]->lay_gradients(std::move(memory[i]));
  schedule_->count_unreduced(gradient_bytes_now() - before);
}

std::int64_t Unit::buffer_bytes(const Wanted& wanted) const {
  return sum([&](const Segment& segment) { return whole_cache_lines(wanted(segment)); });
}

std::int64_t Unit::gathered_buffer_bytes() const {
  return buffer_bytes(bytes_of_values);
}

bool Unit::is_staged() const {
  return std::any_of(segments_.begin(), segments_.end(), [](const auto& s) { return s->is_quantised(); });
}

std::int64_t Unit::staged_buffer_bytes() const {
  return is_staged() ? buffer_bytes(&Segment::staged_bytes) : 0;
}

std::int64_t Unit::gradient_buffer_bytes() const {
  return buffer_bytes(
      [](const Segment& s) { return s.key().trainable && !s.gradient_shard_is_buffer() ? s.gradient_bytes() : 0; });
}

/// One buffer, divided among the segments. Segments that want 0 bytes get no memory.
std::vector<c10::DataPtr> Unit::take(BufferPool& pool, const Wanted& wanted) const {
  std::vector<c10::DataPtr> memory(segments_.size());
  const std::int64_t bytes = buffer_bytes(wanted);
  if (bytes == 0) return memory;
  const auto lease = pool.take(bytes);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const std::int64_t own = wanted(*segments_[i]);
    if (own > 0) memory[i] = lease->part(begin);
    begin += whole_cache_lines(own);
  }
  return memory;
}

bool Unit::has_unreduced() const {
  return std::any_of(segments_.begin(), segments_.end(), [](const auto& s) { return s->has_gradients_; });
}

void Unit::follow_gradients() {
  Segment::Shown shown;
  for (const auto& segment : segments_) segment->find_shown(shown);
  if (shown.gone == nullptr) return;
  TORCH_CHECK(shown.kept == nullptr, "unit ", name_, ": the gradient of ", shown.gone->name,
              " was removed after backward, and that of ", shown.kept == nullptr ? "" : shown.kept->name,
              " was not; drop all by zero_grad(), or leave a parameter out by ParameterGroup::skip");
  schedule_->participation().finish();  // it refers to the gradients
  zero_grad();
}

void Unit::check_step(const char* what) const {
  for (const auto& segment : segments_)
    TORCH_CHECK(!segment->is_unreduced_, what, ": unit ", name_,
                " has gradients that no backward has reduced; make the last backward of a step after "
                "set_requires_gradient_sync(true), or drop the gradients by zero_grad()");
  // With one rank users may change parameters between steps, and the shard has the change.
  if (state_ == State::kUnsharded) check_unchanged(/*resident_too=*/false);
}

void Unit::note_versions(bool resident_only) {
  for (const auto& segment : segments_)
    if (!resident_only || segment->shard_is_parameter()) segment->note_versions();
}

void Unit::check_unchanged(bool resident_too) const {
  for (const auto& segment : segments_)
    if (resident_too || !segment->shard_is_parameter()) segment->check_unchanged();
}

bool Unit::has_gradient() const {
  return std::any_of(segments_.begin(), segments_.end(), [](const auto& s) { return s->gradient_shard_.defined(); });
}

void Unit::reduce_left_over() {
  const at::NoGradGuard no_grad;
  start_reduce();
}

void Unit::end_backward() {
  // The unit may have been gathered ahead for a backward that did not come.
  if (options_.reshard_after_backward) release();
  for (const auto& segment : segments_)
    for (std::size_t i = 0; i < segment->parameters_.size() && !segment->has_gradients_; ++i)
      TORCH_CHECK(!segment->parameters_[i].grad().defined() || segment->shows(i), "unit ", name_, ": the gradient of ",
                  segment->layout().parameters()[i].name,
                  " came after the unit's backward had ended; use the parameter only inside the unit's run()");
  for (const auto& segment : segments_) segment->show_gradients();
}

/// Frees the gathered parameters unless a run or a backward needs them.
void Unit::release() {
  if (running_ == 0 && !in_backward_) free_gathered();
}

/// release() after a failure, which may have broken the all-gather.
void Unit::discard_gathered() {
  if (state_ == State::kGathering && running_ == 0 && !in_backward_) {
    for (const auto& segment : segments_) discard(segment->gathering_);
    state_ = State::kUnsharded;
  }
  drop_part();
  release();
}

/// Gives up what a backward has begun, and all gradients.
void Unit::abandon() {
  forget_runs();
  discard_gathered();
  for (const auto& segment : segments_) segment->discard_reduction();
  zero_grad();
}

void Unit::set_forward_prefetch(std::vector<std::shared_ptr<Unit>> units) {
  forward_prefetch_.emplace();
  for (const auto& unit : units) forward_prefetch_->push_back(unit.get());
}

void Unit::set_backward_prefetch(std::vector<std::shared_ptr<Unit>> units) {
  backward_prefetch_.emplace();
  for (const auto& unit : units) backward_prefetch_->push_back(unit.get());
}

void Unit::unshard() {
  if (state_ != State::kSharded) return;
  const at::NoGradGuard no_grad;
  schedule_->size_pools();
  schedule_->gather_stream().run(values_ready_, [this] {
    const bool staged = is_staged();
    std::vector<c10::DataPtr> memory =
        staged ? take(*schedule_->staged_pool(), &Segment::staged_bytes) : take(*gathered_pool_, bytes_of_values);
    for (std::size_t i = 0; i < segments_.size(); ++i)
      staged ? segments_[i]->stage(std::move(memory[i])) : segments_[i]->unshard(std::move(memory[i]));
    schedule_->gather_stream().mark(gather_begun_);
  });
  schedule_->count_gathered(gathered_bytes_now());
  state_ = State::kGathering;
  ++gathers_;
}

void Unit::wait_unsharded() {
  if (state_ == State::kSharded) unshard();
  if (state_ == State::kUnsharded) return;
  wait_gathered();
  if (is_staged()) make_values();
  state_ = State::kUnsharded;
  note_versions(/*resident_only=*/false);
}

void Unit::wait_gathered() {
  schedule_->gather_stream().wait_for(gather_begun_);
  for (const auto& segment : segments_) segment->wait_gathered();
}

void Unit::make_values() {
  const at::NoGradGuard no_grad;
  const std::int64_t staged = gathered_bytes_now();
  std::vector<c10::DataPtr> memory = take(*gathered_pool_, bytes_of_values);
  schedule_->count_gathered(sum(bytes_of_values));
  for (std::size_t i = 0; i < segments_.size(); ++i) segments_[i]->make_values(std::move(memory[i]));
  schedule_->count_gathered(-staged);
}

void Unit::reshard() {
  if (state_ == State::kUnsharded) check_unchanged(/*resident_too=*/false);
  free_gathered();
}

void Unit::free_gathered() {
  if (state_ == State::kSharded) return;
  if (state_ == State::kGathering) wait_gathered();
  const std::int64_t bytes = gathered_bytes_now();
  bool resident = true;
  for (const auto& segment : segments_) {
    segment->reshard();
    resident = resident && segment->shard_is_parameter();
  }
  schedule_->count_gathered(-bytes);
  if (!resident) state_ = State::kSharded;
}

void Unit::shard_changed() {
  has_values_.assign(has_values_.size(), true);
  shard_changed({});
}

void Unit::shard_changed(const std::vector<std::size_t>& parameters) {
  for (const std::size_t index : parameters) has_values_[index] = true;
  ++parameter_version_;
  schedule_->gather_stream().mark(values_ready_);
  free_gathered();
  drop_part();
}

void Unit::check_values(const char* what) const {
  const auto without = std::find(has_values_.begin(), has_values_.end(), false);
  if (without == has_values_.end()) return;
  const bool some = std::find(has_values_.begin(), has_values_.end(), true) != has_values_.end();
  const std::string& first = infos_[static_cast<std::size_t>(without - has_values_.begin())].name;
  TORCH_CHECK(false, "unit ", name_, ": ", what, " needs values, and ",
              some ? "parameter " + first + " was" : "the parameters were",
              " built on the meta device; call initialize(), load_tensors() or load_full_state(), or load a checkpoint "
              "first");
}

void Unit::start_reduce() {
  if (!has_unreduced()) return;
  schedule_->admit_reduction(*this);
  for (const auto& segment : segments_)
    if (segment->has_gradients_ && !segment->is_reducing()) segment->start_reduce(*schedule_->scratch_pool());
}

void Unit::reduce_further(void (Segment::*part)()) {
  const at::NoGradGuard no_grad;
  const std::int64_t before = gradient_bytes_now();
  for (const auto& segment : segments_) (*segment.*part)();
  schedule_->count_unreduced(gradient_bytes_now() - before);
}

void Unit::zero_grad() {
  finish_reduce();
  const std::int64_t before = gradient_bytes_now();
  for (const auto& segment : segments_) segment->drop_gradients(/*with_memory=*/options_.tight);
  schedule_->count_unreduced(-before);
}

}  // namespace fsdp
