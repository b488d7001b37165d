#include "fsdp/engine/fully_shard.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <unordered_map>

#include "fsdp/engine/layout.h"
#include "fsdp/engine/schedule.h"

namespace fsdp {
namespace {

const void* identity(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl();
}

}  // namespace

ShardedModel::ShardedModel(std::shared_ptr<torch::nn::Module> root, DeviceMesh& mesh)
    : root_(std::move(root)), mesh_(mesh), schedule_(std::make_shared<Schedule>(mesh.shared())) {
  TORCH_CHECK(root_, "fully_shard: no module");
}

ShardedModel::~ShardedModel() = default;

std::string ShardedModel::prefix_of(const torch::nn::Module& module) const {
  return &module == root_.get() ? "" : path_of(module) + ".";
}

std::string ShardedModel::path_of(const torch::nn::Module& module) const {
  if (&module == root_.get()) return "root";
  for (const auto& item : root_->named_modules())
    if (item.value().get() == &module) return item.key();
  TORCH_CHECK(false, "fully_shard: module ", module.name(), " is not in the root module ", root_->name());
}

/// Collects the layout and the tensors of those parameters of `module` that belong to no earlier unit.
void ShardedModel::collect_parameters(const torch::nn::Module& module, const std::string& unit,
                                      std::vector<ParameterInfo>& infos, std::vector<at::Tensor>& tensors) const {
  std::unordered_map<const void*, std::vector<std::string>> names;  // in the whole model
  for (const auto& [name, tensor] : parameter_names(*root_)) names[identity(tensor)].push_back(name);

  struct Owner {
    std::string unit;
    std::vector<std::string> prefixes;  // of the unit's modules
  };
  std::unordered_map<const void*, Owner> owners;
  for (std::size_t i = 0; i < units_.size(); ++i)
    for (const at::Tensor& tensor : units_[i]->parameters_)
      owners[identity(tensor)] = {units_[i]->name(), prefixes_[i]};

  for (const at::Tensor& tensor : tensors) owners[identity(tensor)] = {unit, {}};  // of a module before
  const std::string prefix = prefix_of(module);
  for (const auto& [name, tensor] : parameter_names(module, prefix)) {
    const auto owner = owners.find(identity(tensor));
    if (owner != owners.end()) {
      const auto& prefixes = owner->second.prefixes;
      const bool nested = std::any_of(prefixes.begin(), prefixes.end(), [&, name = name](const std::string& inner) {
        return name.starts_with(inner) && inner.starts_with(prefix);
      });
      TORCH_CHECK(nested || owner->second.unit == unit, "fully_shard: parameter ", name, " of unit ", unit,
                  " belongs to unit ", owner->second.unit, " already, as ", names[identity(tensor)].front(),
                  "; tied parameters must lie in one unit, and children are sharded before their parents");
      continue;
    }
    const auto type = tensor.scalar_type();
    TORCH_CHECK(is_format(type), "fully_shard: parameter ", name, " is ", type, "; want float32, bfloat16 or float16");
    owners[identity(tensor)] = {unit, {}};
    const auto& own_names = names[identity(tensor)];
    infos.push_back(
        {own_names.front(), {own_names.begin() + 1, own_names.end()}, tensor.sizes().vec(), tensor.numel(), 0, 0});
    tensors.push_back(tensor);
  }
}

void ShardedModel::check_buffers(const torch::nn::Module& module, const std::string& unit) const {
  for (const auto& buffer : module.named_buffers())
    TORCH_CHECK(!buffer.value().is_meta(), "fully_shard: buffer ", buffer.key(), " of unit ", unit,
                " is on the meta device and would never get values; make it with a device, such as at::kCPU");
}

std::shared_ptr<Unit> ShardedModel::fully_shard(const std::shared_ptr<torch::nn::Module>& module,
                                                const ShardOptions& options,
                                                const std::vector<std::shared_ptr<torch::nn::Module>>& with) {
  TORCH_CHECK(module, "fully_shard: no module");
  const std::string name = path_of(*module);
  for (const auto& unit : units_) TORCH_CHECK(unit->name() != name, "fully_shard: ", name, " is a unit already");
  TORCH_CHECK(units_.empty() || units_.front()->options().offload == options.offload, "fully_shard: unit ", name,
              " has another offload than unit ", units_.front()->name(), "; give all units of a model the same");
  std::vector<ParameterInfo> infos;
  std::vector<at::Tensor> tensors;
  std::vector<torch::nn::Module*> modules{module.get()};
  for (const auto& other : with) modules.push_back(other.get());
  for (const torch::nn::Module* each : modules) {
    collect_parameters(*each, name, infos, tensors);
    check_buffers(*each, name);
  }
  if (options.sync_module_states) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      TORCH_CHECK(!tensors[i].is_meta(), "fully_shard: sync_module_states copies values, and parameter ", infos[i].name,
                  " is on the meta device; leave the option out and call initialize() or load_tensors()");
    const auto from_rank_zero = [this](at::Tensor data) {
      mesh_.shard().broadcast(data);
      if (mesh_.replicate() != nullptr) mesh_.replicate()->broadcast(data);
    };
    for (const at::Tensor& tensor : tensors) from_rank_zero(tensor.detach());
    for (const torch::nn::Module* each : modules)
      for (const at::Tensor& buffer : each->buffers()) from_rank_zero(buffer.detach());
  }
  for (const torch::nn::Module* each : modules) cast_buffers(*each, name, options.precision.buffer_dtype);
  if (options.reshard_to_ranks != 0 && options.reshard_after_forward)
    schedule_->add_shard_group(mesh_.shard_group(options.reshard_to_ranks));
  units_.push_back(std::make_shared<Unit>(name, std::move(infos), std::move(tensors), schedule_, options));
  prefixes_.emplace_back();
  for (const torch::nn::Module* each : modules) prefixes_.back().push_back(prefix_of(*each));
  return units_.back();
}

void ShardedModel::cast_buffers(const torch::nn::Module& module, const std::string& unit,
                                std::optional<at::ScalarType> dtype) const {
  if (!dtype) return;
  TORCH_CHECK(is_format(*dtype), "unit ", unit, ": buffer_dtype must be float32, bfloat16 or float16, got ", *dtype);
  const std::string prefix = prefix_of(module);
  const auto is_of_earlier_unit = [this](const std::string& buffer) {
    return std::any_of(prefixes_.begin(), prefixes_.end(), [&](const auto& earlier) {
      return std::any_of(earlier.begin(), earlier.end(), [&](const auto& inner) { return buffer.starts_with(inner); });
    });
  };
  const at::NoGradGuard no_grad;
  for (const auto& item : module.named_buffers()) {
    at::Tensor buffer = item.value();
    if (!buffer.is_floating_point() || is_of_earlier_unit(prefix + item.key())) continue;
    // The module's members and its dictionary hold this very TensorImpl.
    buffer.set_data(buffer.detach().to(*dtype));
  }
}

std::vector<PlacedParameter> ShardedModel::parameters() const {
  std::vector<PlacedParameter> all;
  for (std::size_t unit = 0; unit < units_.size(); ++unit)
    for (const auto& segment : units_[unit]->segments())
      for (const ParameterInfo& info : segment->layout().parameters()) all.push_back({unit, *segment, info});
  return all;
}

std::int64_t ShardedModel::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& unit : units_) count += unit->numel();
  return count;
}

void ShardedModel::set_requires_gradient_sync(bool sync) {
  schedule_->set_gradient_sync(sync);
}

void ShardedModel::zero_grad() {
  schedule_->settle();
  schedule_->participation().finish();
  for (const auto& unit : units_) unit->zero_grad();
  schedule_->trim();
  schedule_->start_over();
}

void ShardedModel::abandon_step() {
  schedule_->abandon_step();
}

void ShardedModel::complete_gradients(const char* what) const {
  schedule_->settle();
  schedule_->check_whole(what);
  schedule_->participation().finish();
  schedule_->check_gradients(what);
  await_copies();
}

at::Device ShardedModel::home() const {
  return units_.empty() ? mesh_.device() : units_.front()->options().offload.home(mesh_.device());
}

void ShardedModel::await_copies() const {
  if (home() != mesh_.device())
    c10::impl::VirtualGuardImpl(mesh_.device().type()).synchronizeDevice(mesh_.device().index());
}

std::map<std::string, at::Tensor> ShardedModel::gather_full_state(bool rank_zero_only) {
  return gather_full(rank_zero_only, false);
}

std::map<std::string, at::Tensor> ShardedModel::gather_full_gradients(bool rank_zero_only) {
  complete_gradients("gather_full_gradients");
  return gather_full(rank_zero_only, true);
}

std::map<std::string, at::Tensor> ShardedModel::gather_full(bool rank_zero_only, bool gradients) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> full;
  for (const auto& unit : units_) {
    unit->check_values("gather_full_state");
    for (const auto& segment : unit->segments()) {
      const at::Tensor shard = gradients ? segment->gradient_shard() : segment->values();
      if (!shard.defined()) continue;
      const UnitLayout& layout = segment->layout();
      const at::Tensor buffer = at::empty({layout.padded_numel()}, shard.options().device(mesh_.device()));
      mesh_.shard().gather(buffer, shard, unit->name());
      if (rank_zero_only && mesh_.rank() != 0) continue;
      for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
        const ParameterInfo& info = layout.parameters()[i];
        if (gradients && !segment->used(i)) continue;
        const at::Tensor tensor = info.in(buffer).to(at::kCPU, at::kFloat).clone();
        full[info.name] = tensor;
        for (const std::string& alias : info.aliases) full[alias] = tensor;
      }
    }
  }
  return full;
}

void ShardedModel::fill(const Fill& fill, const std::function<bool(const ParameterInfo&)>& only) {
  const at::NoGradGuard no_grad;
  await_copies();
  for (const auto& unit : units_) {
    std::vector<std::size_t> filled;
    for (const auto& segment : unit->segments()) {
      for (const ParameterInfo& info : segment->layout().parameters()) {
        if (only && !only(info)) continue;
        filled.push_back(info.index);
        const Slice slice = segment->layout().own(info);
        for (std::int64_t done = 0; done < slice.length; done += kMostFilled) {
          const std::int64_t count = std::min(kMostFilled, slice.length - done);
          const at::Tensor& shard = segment->shard();
          const bool in_place = shard.is_cpu() && shard.scalar_type() == at::kFloat;
          const std::int64_t begin = slice.shard_offset + done;
          const at::Tensor values = in_place ? shard.narrow(0, begin, count) : at::empty({count}, at::kFloat);
          fill(info, slice.begin + done, values);
          if (!in_place) segment->write(begin, values);
        }
      }
    }
    if (!filled.empty()) unit->shard_changed(filled);
  }
}

void ShardedModel::load_full_state(const std::map<std::string, at::Tensor>& state) {
  for (const auto& [unit, segment, info] : parameters()) {
    const auto found = state.find(info.name);
    TORCH_CHECK(found != state.end(), "load_full_state: no tensor for ", info.name);
    TORCH_CHECK(found->second.sizes() == at::IntArrayRef(info.shape), "load_full_state: ", info.name, " has shape ",
                found->second.sizes(), ", the model wants ", at::IntArrayRef(info.shape));
  }
  fill([&](const ParameterInfo& parameter, std::int64_t begin, const at::Tensor& values) {
    values.copy_(state.at(parameter.name).detach().reshape({-1}).narrow(0, begin, values.numel()));
  });
}

std::set<BufferPool*> ShardedModel::pools() const {
  std::set<BufferPool*> all{schedule_->gathered_pool().get(), schedule_->gradient_pool().get(),
                            schedule_->scratch_pool().get(), schedule_->part_pool().get(),
                            schedule_->staged_pool().get()};
  for (const auto& unit : units_) all.insert({unit->gathered_pool_.get(), unit->gradient_pool_.get()});
  return all;
}

void ShardedModel::keep_pool_memory(bool keeps) {
  for (BufferPool* pool : pools()) pool->keep_memory(keeps);
}

void ShardedModel::changed_by_current_stream() {
  for (const auto& unit : units_) unit->shard_changed();
  for (BufferPool* pool : pools()) pool->mark_free();
}

MemoryUse ShardedModel::memory() const {
  MemoryUse use;
  for (const auto& unit : units_) {
    use.shard_bytes += unit->sharded_bytes();
    for (const auto& segment : unit->segments()) {
      use.gradient_memory_bytes += segment->gradient_memory_bytes();
      if (segment->gradient_shard().defined())
        use.gradient_shard_bytes += static_cast<std::int64_t>(segment->gradient_shard().nbytes());
    }
    use.gathered_bytes_now += unit->gathered_bytes_now();
    use.unreduced_bytes_now += unit->gradient_bytes_now();
  }
  for (const BufferPool* pool : pools()) use.pool_bytes += pool->bytes();
  use.gathered_bytes_peak = schedule_->gathered_bytes_peak();
  use.unreduced_bytes_peak = schedule_->unreduced_bytes_peak();
  return use;
}

}  // namespace fsdp
