#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

/// Every name of every parameter, with a tied parameter under each of its names. A module's own parameters come before
/// those of its children, and children come in the order of registration.
std::vector<std::pair<std::string, at::Tensor>> parameter_names(const torch::nn::Module& module,
                                                                const std::string& prefix = "");

/// One parameter and its position in its unit.
struct ParameterInfo {
  /// The name in the whole model, as root->named_parameters() gives it.
  std::string name;
  /// Other names of the same tensor (tied parameters).
  std::vector<std::string> aliases;
  std::vector<std::int64_t> shape;
  std::int64_t numel = 0;
  /// Index of the first element in the segment's flat buffer, a multiple of UnitLayout::kAlignment.
  std::int64_t offset = 0;
  /// The parameter's place among all parameters of its unit. It never changes.
  std::size_t index = 0;

  /// The parameter as a view of its segment's gathered buffer.
  at::Tensor in(const at::Tensor& buffer) const { return buffer.narrow(0, offset, numel).view(shape); }
};

/// The part of one parameter that one rank owns: elements [begin, begin + length) of the flattened parameter. The part
/// starts at element `shard_offset` of the rank's shard. length may be 0.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t shard_offset = 0;

  /// The part as a view of a flat tensor that is laid out as the shard.
  at::Tensor in(const at::Tensor& flat) const { return flat.narrow(0, shard_offset, length); }
};

/// How an optimizer's state is kept beside the shard: one value for each `block` elements of a parameter, on the rank
/// that has these, or some values of a parameter as a whole, on every rank.
struct StateForm {
  at::ScalarType dtype = at::kFloat;
  /// 1, or a divisor of UnitLayout::alignment(). So every block lies on one rank.
  std::int64_t block = 1;
  /// Tells which parameters have the state. Null: all do.
  std::function<bool(const ParameterInfo&)> has = {};
  /// Gives the number of values that every rank has of a parameter; 0: no state. Null: values are sharded.
  std::function<std::int64_t(const ParameterInfo&)> replicated = {};

  bool is_of(const ParameterInfo& parameter) const {
    return (!has || has(parameter)) && (!replicated || replicated(parameter) > 0);
  }
  /// Values for `elements` elements from the start of a block on.
  std::int64_t values(std::int64_t elements) const { return (elements + block - 1) / block; }
};

/// A state of an optimizer. Optimizers of one name whose states have other forms give those other names, so that a
/// checkpoint of the one is refused by the other.
struct StateSpec {
  StateSpec(const char* state, StateForm kept = {}) : name(state), form(std::move(kept)) {}
  std::string name;
  StateForm form;
};

/// How a segment's parameters lie in one flat buffer, and how ranks divide the buffer. Pure arithmetic.
///
/// Parameters follow each other in row-major order. Parameters and chunks start at multiples of alignment() elements.
/// Padding at the end makes the buffer world_size equal chunks, so a plain all-gather of chunks gives the parameters
/// without copies. A chunk border may fall anywhere, even inside a row. In a small unit the last ranks hold only
/// padding.
class UnitLayout {
 public:
  /// 32 elements are 64 bytes in bf16, so every view starts on a cache line in every dtype.
  static constexpr std::int64_t kAlignment = 32;

  UnitLayout() = default;
  /// Fills in the offsets of `parameters`. `rank` is this rank's place among those that share the buffer. Throws
  /// c10::Error for an alignment that is no multiple of kAlignment.
  UnitLayout(std::vector<ParameterInfo> parameters, int world_size, int rank, std::int64_t alignment = kAlignment);

  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  int world_size() const { return world_size_; }
  /// Elements from whose multiples parameters and chunks start.
  std::int64_t alignment() const { return alignment_; }
  /// Elements of one rank's shard, padding included.
  std::int64_t chunk() const { return chunk_; }
  /// Elements of the gathered buffer: world_size * chunk.
  std::int64_t padded_numel() const { return chunk_ * world_size_; }
  /// Elements without padding.
  std::int64_t numel() const { return numel_; }

  /// The part that this rank owns.
  Slice own(const ParameterInfo& parameter) const { return slice(parameter, rank_); }
  Slice slice(const ParameterInfo& parameter, int rank) const;
  /// This rank's values of a parameter's state, counted in values. A state that all parameters have lies as the shard
  /// does. One that some have, or that is replicated, holds the values without gaps.
  Slice own_state(const StateForm& form, const ParameterInfo& parameter) const;
  /// Values of the state on this rank.
  std::int64_t state_numel(const StateForm& form) const;

 private:
  std::vector<ParameterInfo> parameters_;
  int world_size_ = 1;
  int rank_ = 0;
  std::int64_t alignment_ = kAlignment;
  std::int64_t chunk_ = 0;
  std::int64_t numel_ = 0;
};

/// True for the number formats that units know.
inline bool is_format(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

/// The number formats of one unit. A format is kFloat, kBFloat16 or kHalf (fp16). Every rank must pass the same values.
///
/// Gradients in fp16 underflow without a scale on the loss: see GradScaler.
struct Precision {
  /// The dtype of forward, backward and the all-gather. The shard of a trainable parameter stays the fp32 master either
  /// way. A parameter that never trains is kept in this dtype.
  at::ScalarType param_dtype = at::kFloat;
  /// Gives single parameters another dtype than param_dtype, such as fp32 norms beside bf16 matrices. Null: none.
  std::function<at::ScalarType(const ParameterInfo&)> param_dtype_of = {};
  /// In which gradients are accumulated and reduced. The sharded gradient is fp32 either way.
  at::ScalarType reduce_dtype = at::kFloat;
  /// Casts floating-point outputs of run(), recorded by autograd. Unset: outputs stay as forward made them.
  std::optional<at::ScalarType> output_dtype = std::nullopt;
  /// fully_shard() casts the module's floating-point buffers once, those of earlier units excepted. They stay in this
  /// dtype. Unset: buffers stay as they are.
  std::optional<at::ScalarType> buffer_dtype = std::nullopt;
  /// Casts floating-point inputs of run() to param_dtype.
  bool cast_inputs = true;
  /// Divides the sum of the ranks' gradients, in place of the number of ranks: 1 gives the sum instead of the mean. As
  /// set_gradient_divide_factor() of PyTorch's FSDP2. Above 0.
  std::optional<double> gradient_divide_factor = std::nullopt;
};

/// By what a gradient is divided before the sum over the ranks, and by what the sum is divided.
struct DivideFactors {
  double before = 1;
  double after = 1;
  bool operator==(const DivideFactors&) const = default;
};

/// The product of both factors is `total`, or `ranks` when it is unset. In fp32 and bf16 all is divided after the sum.
/// In fp16 a power of two near the root is divided before it, so that neither the sum overflows nor a part underflows;
/// the rule is _get_gradient_divide_factors() of PyTorch's FSDP2.
DivideFactors divide_factors(at::ScalarType reduce_dtype, int ranks, std::optional<double> total = std::nullopt);

}  // namespace fsdp
