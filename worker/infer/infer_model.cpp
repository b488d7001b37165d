#include "worker/infer/infer_model.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <set>
#include <stdexcept>
#include <utility>

#include "base/numbers.h"
#include "base/usage_error.h"
#include "fsdp/engine/initialize.h"
#include "fsdp/files/checkpoint.h"
#include "fsdp/files/tensor_files.h"
#include "worker/adapters/low_rank.h"
#include "worker/files/model_tensors.h"
#include "worker/models/layers/layers.h"
#include "worker/models/ops.h"

namespace infer {

at::Tensor pooled(const at::Tensor& states, const at::Tensor& mask, Pool pool) {
  if (pool == Pool::kCls) return states.select(1, 0).to(at::kFloat);
  const at::Tensor lengths = mask.sum(1);
  if (pool == Pool::kLast) {
    const at::Tensor places = (lengths - 1).view({-1, 1, 1}).expand({-1, 1, states.size(2)});
    return states.gather(1, places).squeeze(1).to(at::kFloat);
  }
  const at::Tensor counted = states.to(at::kFloat).masked_fill(mask.logical_not().unsqueeze(2), 0);
  return counted.sum(1) / lengths.unsqueeze(1);
}

namespace {

using base::UsageError;

at::ScalarType dtype_named(const std::string& name) {
  if (name == "bf16") return at::kBFloat16;
  return name == "fp16" ? at::kHalf : at::kFloat;
}

fsdp::DeviceMesh mesh_on(at::Device device) {
  fsdp::MeshOptions options;
  options.device = device;
  return {nullptr, 0, 1, options};
}

std::shared_ptr<torch::nn::Module> without_values(const Source& source,
                                                  const std::function<std::shared_ptr<torch::nn::Module>()>& make) {
  const fsdp::MetaDeviceGuard guard;
  auto module = make();
  if (source.adapters) worker::add_adapters(*module, source.adapters->shape, /*dropout=*/0, source.folder.native());
  for (auto& parameter : module->parameters()) parameter.set_requires_grad(false);
  module->eval();
  return module;
}

}  // namespace

worker::Activations activations_of(const Options& options) {
  const at::ScalarType dtype = dtype_named(options.dtype);
  if (options.device == "cpu") return {dtype, at::kCPU};
  const std::string number = options.device.starts_with("cuda:") ? options.device.substr(5) : "0";
  const int wanted = base::whole_number<int>(number).value_or(0);
  const at::Device device = fsdp::device_of_rank(wanted);
  if (options.device.empty()) return {dtype, device};
  if (!device.is_cuda() || device.index() != wanted) {
    throw UsageError("--device " + options.device +
                     ": this program does not see that GPU, or is built without CUDA; give another one, or cpu");
  }
  return {dtype, device};
}

LoadedModel::LoadedModel(const Source& source, const Options& options,
                         const std::function<std::shared_ptr<torch::nn::Module>()>& make,
                         const std::function<bool(const std::string& parameter)>& in_fp32, bool some_parameters)
    : activations_(activations_of(options)),
      mesh_(mesh_on(activations_.device)),
      module_(without_values(source, make)) {
  auto* wrapped = dynamic_cast<worker::Wrapped*>(module_.get());
  if (wrapped == nullptr) throw std::logic_error("a model for inference must be worker::Wrapped");
  sharded_ = std::make_unique<fsdp::ShardedModel>(module_, mesh_);
  fsdp::ShardOptions one_unit;
  one_unit.precision.param_dtype = activations_.dtype;
  one_unit.reshard_after_forward = false;
  if (in_fp32) {
    one_unit.precision.param_dtype_of = [in_fp32, dtype = activations_.dtype](const fsdp::ParameterInfo& parameter) {
      return in_fp32(parameter.name) ? at::kFloat : dtype;
    };
  }
  wrapped->wrapper = [unit = sharded_->fully_shard(module_, one_unit)](worker::Tensors inputs,
                                                                       const worker::Forward& forward) {
    return unit->run_list(std::move(inputs), forward);
  };
  try {
    if (source.adapters) load_base(source);
    if (source.checkpoint) {
      load_checkpoint(source, options, some_parameters);
    } else if (source.adapters) {
      load_adapter_file(source);
    } else {
      load_model_files(source, source.folder);
    }
  } catch (const fsdp::UnfitTensors& error) {
    throw UsageError(error.what());
  } catch (const fsdp::CheckpointError& error) {
    throw UsageError(error.what());
  } catch (const c10::Error& error) {
    throw UsageError(error.what_without_backtrace());
  }
}

void LoadedModel::load_model_files(const Source& source, const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& unit : sharded_->units())
    for (const auto& segment : unit->segments())
      for (const auto& parameter : segment->layout().parameters()) names.insert(parameter.name);
  const worker::FileNames& of_family = source.family->names;
  const fsdp::TensorFiles files(folder);
  worker::check_equal_tensors(of_family, source.values, files);
  fsdp::LoadNames load =
      worker::load_names(of_family, source.values, files, [&](const auto& name) { return names.contains(name); });
  load.may_ignore = [&of_family, usual = load.may_ignore,
                     parameter_of = load.parameter_of](const std::string& in_file) {
    return usual(in_file) || of_family.may_lack(parameter_of(in_file));
  };
  load.may_lack = worker::is_of_adapter;  // adapters come from elsewhere
  fsdp::load_tensors(*sharded_, files, load);
}

void LoadedModel::load_base(const Source& source) {
  const AdapterSource& adapters = *source.adapters;
  if (!adapters.fingerprint.empty() && worker::fingerprint_of(adapters.base) != adapters.fingerprint) {
    throw UsageError(source.folder.native() + ": its adapters were trained with other files than those that are in " +
                     adapters.base.native() + " now; restore the files");
  }
  load_model_files(source, adapters.base);
}

void LoadedModel::load_adapter_file(const Source& source) {
  const auto parameter_of = [](const std::string& in_file) {
    return in_file.starts_with(worker::kPeftPrefix) ? in_file.substr(worker::kPeftPrefix.size()) : in_file;
  };
  const auto may_lack = [](const std::string& parameter) { return !worker::is_of_adapter(parameter); };
  fsdp::load_tensors(*sharded_, fsdp::TensorFiles(source.adapters->file),
                     {.parameter_of = parameter_of, .may_lack = may_lack});
}

void LoadedModel::load_checkpoint(const Source& source, const Options& options, bool some_parameters) {
  fsdp::CheckpointOptions reading;
  reading.folder = source.folder.parent_path();
  reading.some_parts = true;
  reading.some_parameters = some_parameters;
  fsdp::CheckpointPart part{.name = options.part, .model = *sharded_, .averages = true};
  if (source.adapters) part.saved = worker::is_of_adapter;
  fsdp::Checkpointer checkpointer({part}, reading);
  checkpointer.load(*source.checkpoint);
}

}  // namespace infer
