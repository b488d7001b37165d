#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/table.h"

namespace worker {

// [Note: gradients in place] Autograd makes a weight's gradient in memory of its own and then adds it to the one that
// is there: a temporary of the weight's size, written and read once more. The functions below let the product itself
// add to weight.grad(), where a gradient of the same dtype is there already. An engine that keeps gradients in memory
// of its own says where a first gradient belongs, and then the product is written there. So an engine gets gradients
// without a copy, nothing is cleared first, and a second micro-batch needs no temporary. Megatron-LM calls this
// gradient accumulation fusion. In every other case they do what LibTorch's own functions do.

/// Says where the first gradient of a parameter belongs. An undefined tensor: nowhere now, or, without `any_dtype`,
/// where a gradient of another dtype than the parameter's belongs. Null: no engine looks after the parameter.
using GradientPlaces = std::optional<at::Tensor> (*)(const at::Tensor& parameter, bool any_dtype);

/// Sets the function of the engine that trains the models, for the whole process. Null takes the function away.
void use_gradient_places(GradientPlaces places);

/// Where a backward that runs now may put a gradient.
struct GradientTarget {
  at::Tensor memory;  // of the parameter's shape; undefined: the gradient must be returned
  bool is_fresh =
      false;  // The values are unknown: write all of them, and then set the memory as parameter.mutable_grad().
};

/// A place, or parameter.grad() to add to. Neither where a hook waits for the gradient, create_graph or
/// torch::autograd::grad() asks for it, or, without `any_dtype`, the memory is not of the parameter's dtype. A place
/// that was handed out must be filled.
GradientTarget gradient_target(const at::Tensor& parameter, bool any_dtype = false);

/// Functions by which an activation checkpoint keeps results of the operations "linear" and "attention" below.
struct ActivationCheckpoint {
  /// True if the results of an operation with this name are kept for the checkpoint's second call.
  bool (*keeps)(std::string_view operation);
  /// The results of `compute`: computed in the first call, and as they were kept in the second one. `compute` draws no
  /// random numbers.
  std::vector<at::Tensor> (*results_of)(std::string_view operation,
                                        const std::function<std::vector<at::Tensor>()>& compute);
};

inline constexpr std::string_view kLinear = "linear", kAttention = "attention";

/// Sets the functions of the engine that trains the models, for the whole process. `checkpoint` lives as long.
void use_activation_checkpoint(const ActivationCheckpoint* checkpoint);

bool checkpoint_keeps(std::string_view operation);
/// ActivationCheckpoint::results_of(); without an engine, the results of `compute`.
std::vector<at::Tensor> checkpointed(std::string_view operation,
                                     const std::function<std::vector<at::Tensor>()>& compute);

/// x W^T + b: x is [.., in] with at least two dims, weight W is [out, in], bias b is [out] or undefined for none, the
/// result is [.., out]. See [Note: gradients in place].
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

/// x W^T for W, the two or three `weights` [out, in] below each other: the results of linear() for each, side by side
/// in rows [.., sum of outs], by one product. A sharding engine gathers a part's weights into one buffer, and lays
/// their gradients so, too; then no copy is made. Undefined where the weights do not follow each other in memory: the
/// caller calls linear() for each. See [Note: gradients in place].
at::Tensor joint_linear(const at::Tensor& x, const std::vector<at::Tensor>& weights);

/// Rows of a table: weight is [count, size], ids are int64 [..], the result is [.., size]. In place, the gradient costs
/// the rows that were looked up and not the whole table. See [Note: gradients in place].
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids);

/// For FileNames: a parameter_of that changes nothing, no tensor, and no parameter.
std::string same_name(std::string_view in_file);
std::string no_tensor(std::string_view in_file, const spec::Values& model);
bool no_parameter(std::string_view parameter);

/// How the tensors in a family's files belong to the parameters of its models. No member is null.
struct FileNames {
  /// The prefix that the base model's parameters have inside of a model with a head: "bert.". Files of the base model
  /// lack it.
  std::string_view base = {};
  /// The parameter of a name in a file, spelt as that file spells it: "LayerNorm.gamma" becomes "LayerNorm.weight".
  std::string (*parameter_of)(std::string_view in_file) = same_name;
  /// Tells whether the model does without that tensor, such as a table that old files hold, or a second name of a tied
  /// weight.
  bool (*may_ignore)(std::string_view in_file, const spec::Values& model);
  /// Tells whether training may draw that parameter where the files lack it, such as a head.
  bool (*may_lack)(std::string_view parameter) = no_parameter;
  /// The tensor to which one must be equal, because the model has one parameter for both: the table of embeddings for a
  /// tied head. transformers 4 takes the table for both, and transformers 5 keeps a head that differs. Empty: none.
  std::string (*equal_to)(std::string_view in_file, const spec::Values& model) = no_tensor;
  /// The tensor that counts instead of one where the files have both. Empty: none.
  std::string (*replaced_by)(std::string_view in_file, const spec::Values& model) = no_tensor;
};

/// The parameter that a tensor in a file gives its values to. Tries the name as it is, then with the base prefix
/// removed, then with it added, as transformers does. `is_parameter` says whether the model has that name. Where no
/// name fits, it returns the first one, so that an error can name it.
std::string parameter_in(const FileNames& names, std::string_view in_file,
                         const std::function<bool(const std::string& name)>& is_parameter);

/// Draws first values for elements of the parameter `name`, as transformers does for most families: ones for the
/// weights of norms ("input_layernorm.weight", "LayerNorm.weight"), zeros for biases, and Normal(0, `deviation`) for
/// the rest.
void draw_normal(const std::string& name, const at::Tensor& values, double deviation, at::Generator& random);

}  // namespace worker
