#include "infer/weights.h"

#include <c10/util/Exception.h>

#include <set>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "fsdp/checkpoint.h"
#include "fsdp/meta_device.h"
#include "fsdp/tensor_files.h"
#include "models/layers/wrapped.h"
#include "models/tensors.h"
#include "rank/errors.h"
#include "schema/whole_number.h"

namespace infer {
namespace {

using worker::UsageError;

at::ScalarType dtype_named(const std::string& name) {
  if (name == "bf16") return at::kBFloat16;
  return name == "fp16" ? at::kHalf : at::kFloat;
}

fsdp::DeviceMesh mesh_on(at::Device device) {
  fsdp::MeshOptions options;
  options.device = device;
  return {nullptr, 0, 1, options};
}

std::shared_ptr<torch::nn::Module> without_values(const std::function<std::shared_ptr<torch::nn::Module>()>& make) {
  const fsdp::MetaDeviceGuard guard;
  auto module = make();
  for (auto& parameter : module->parameters()) parameter.set_requires_grad(false);
  module->eval();
  return module;
}

}  // namespace

worker::Activations activations_of(const Options& options) {
  const at::ScalarType dtype = dtype_named(options.dtype);
  if (options.device == "cpu") return {dtype, at::kCPU};
  const std::string number = options.device.starts_with("cuda:") ? options.device.substr(5) : "0";
  const int wanted = schema::whole_number<int>(number).value_or(0);
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
    : activations_(activations_of(options)), mesh_(mesh_on(activations_.device)), module_(without_values(make)) {
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
    source.checkpoint ? load_checkpoint(source, options, some_parameters) : load_files(source);
  } catch (const fsdp::UnfitTensors& error) {
    throw UsageError(error.what());
  } catch (const fsdp::CheckpointError& error) {
    throw UsageError(error.what());
  } catch (const c10::Error& error) {
    throw UsageError(error.what_without_backtrace());
  }
}

void LoadedModel::load_files(const Source& source) {
  std::set<std::string> names;
  for (const auto& unit : sharded_->units())
    for (const auto& segment : unit->segments())
      for (const auto& parameter : segment->layout().parameters()) names.insert(parameter.name);
  const worker::FileNames& of_family = source.family->names;
  const auto parameter_of = [&](const std::string& in_file) {
    return worker::parameter_in(of_family, in_file, [&](const auto& name) { return names.contains(name); });
  };
  const auto may_ignore = [&](const std::string& in_file) {
    return of_family.may_ignore(in_file, source.values) || of_family.may_lack(parameter_of(in_file));
  };
  fsdp::load_tensors(*sharded_, fsdp::TensorFiles(source.folder),
                     {.parameter_of = parameter_of, .may_ignore = may_ignore});
}

void LoadedModel::load_checkpoint(const Source& source, const Options& options, bool some_parameters) {
  fsdp::CheckpointOptions reading;
  reading.folder = source.folder.parent_path();
  reading.some_parts = true;
  reading.some_parameters = some_parameters;
  fsdp::Checkpointer checkpointer({fsdp::CheckpointPart{.name = options.part, .model = *sharded_}}, reading);
  checkpointer.load(*source.checkpoint);
}

}  // namespace infer
