#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/optim/moments.h"

namespace fsdp {

/// The decay rates of an optimizer's averages.
struct Betas {
  double first = 0.9;
  double second = 0.999;
  bool operator==(const Betas&) const = default;
};

/// How an optimizer treats one parameter. Parameters with equal values are updated by one call.
struct ParameterGroup {
  /// Multiplies the learning rate of each step.
  double lr_scale = 1;
  /// Which of the rates that Optimizer::set_rate() changes the parameter has. Any number.
  int rate = 0;
  /// Replaces the optimizer's weight decay, for ever. Empty: the optimizer's, which set_weight_decay() changes.
  std::optional<double> weight_decay = std::nullopt;
  /// Replaces the optimizer's betas. SGD has none.
  std::optional<Betas> betas = std::nullopt;
  /// Leaves the parameter alone, as if it had no gradient. Its gradient still counts in norms. To save the memory of
  /// gradient and states, freeze the parameter instead.
  bool skip = false;
  bool operator==(const ParameterGroup&) const = default;
};
using GroupOf = std::function<ParameterGroup(const ParameterInfo&)>;

/// Parameters with two or more dims decay. Norms and biases do not.
ParameterGroup decay_matrices(const ParameterInfo& parameter);

/// Layer-wise rates (BEiT, arXiv 2106.08254): multiplies the rate of a parameter by factor^distance. `distance` counts
/// the layers between the parameter and the output; 0: the full rate. `group` gives the other values.
GroupOf with_layer_rates(GroupOf group, double factor, std::function<int(const ParameterInfo&)> distance);

/// The name of the state that Optimizer::keep_average() adds.
inline constexpr const char* kAverageState = "average";

/// An optimizer on the shards. Its states are named flat tensors beside the shards, Segment::state(name). A state in
/// fp32 needs 4 bytes for each trainable element of this rank, and a checkpoint holds the states by their names.
///
/// A parameter that took part in no rank's backward is left alone, as in torch.optim: it does not decay, and its states
/// and step count stay. A parameter that never trains has no states. A model has one optimizer at a time, because names
/// of states would collide. `model` must outlive the optimizer. Construct the optimizer after the last fully_shard().
///
/// [Note: cached lists] A step passes lists of slices to LibTorch: of parameters, gradients, states and step counts.
/// One entry is this rank's slice of one parameter and not a whole shard. So padding is never touched, and with one
/// rank every element takes the same path through a kernel as in a plain parameter. The lists stay from step to step,
/// as long as the shards, the gradients and the set of parameters that took part are the same. Step counts lie in one
/// tensor, which is advanced in place. After a change of requires_grad the lists keep the old shards until the next
/// step().
///
/// Not thread-safe.
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Makes one update with learning rate `lr` and drops the gathered copies. Gradients stay, so call zero_grad()
  /// afterwards. Collective with Adafactor and Muon alone.
  /// `grad_scale` and `found_inf` are those of LibTorch's fused optimizers: fp32, one element, on the model's device.
  /// The gradients are divided by grad_scale first, in place. When found_inf is 1, nothing changes but steps():
  /// weights, states and step counts of parameters stay. All ranks must pass equal values. See gradient_norm().
  /// Throws c10::Error when a backward of this step threw.
  void step(double lr, const at::Tensor& grad_scale = {}, const at::Tensor& found_inf = {});
  /// Makes the same step with a learning rate that is read when the device updates: fp32, no dims, beside the shards.
  /// So a graph of the step takes another rate in each replay. Rates of groups are multiplied in fp32. Throws
  /// c10::Error unless host_reads() is empty.
  void step(const at::Tensor& lr, const at::Tensor& grad_scale = {}, const at::Tensor& found_inf = {});
  /// Names what step() reads on the host, for people: "found_inf". Empty: nothing, so that a graph can hold step().
  virtual std::string host_reads() const { return {}; }

  /// The weight decay of the steps to come, for parameters whose group has none of its own.
  void set_weight_decay(double weight_decay) { weight_decay_ = weight_decay; }
  double weight_decay() const { return weight_decay_; }

  /// From the next step on, multiplies the learning rate of the parameters whose group has this `rate`. 1 in the
  /// beginning. With 0 the values stay while states and step counts go on. All ranks must pass equal values. A
  /// checkpoint does not hold it. Throws c10::Error when no parameter has this rate, and for a scale below 0.
  void set_rate(int rate, double scale);
  /// The scale of each rate that a parameter has.
  const std::map<int, double>& rates() const { return rates_; }

  /// Keeps a moving average of the weights from now on, as one more state, "average". After the n-th update of a
  /// parameter its average is the sum of decay^(n-i) x weights i over the sum of decay^(n-i), so it needs no first
  /// value (as Adam's corrected averages, arXiv 1412.6980, section 3). Call it once, before the first step and before a
  /// checkpoint is loaded. Throws c10::Error for a decay that is not above 0 and below 1, and at a second call.
  void keep_average(double decay);
  bool keeps_average() const { return average_decay_ > 0; }
  /// Exchanges the weights of every parameter that was updated with their average; a second call takes that back. No
  /// step in between. Drops the gathered copies. Waits for the device. Not collective, but every rank must call it.
  /// Throws c10::Error without keep_average().
  void exchange_average();
  /// Throws c10::Error naming `what` while the average is in the weights' place.
  void check_own_weights(const char* what) const;

  /// "adamw": what a checkpoint calls the optimizer.
  const std::string& name() const { return name_; }
  const std::vector<StateSpec>& states() const { return states_; }
  std::vector<std::string> state_names() const;

  /// The number of calls of step() so far, earlier runs of a checkpoint included.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Updates by parameter: [i][p] is of parameter p (ParameterInfo::index) of model.units()[i]. Equal on every rank.
  using StepCounts = std::vector<std::vector<std::int64_t>>;
  /// Waits for the device. Counts are exact up to 2^24, as in torch.optim.
  StepCounts parameter_steps() const;
  void set_parameter_steps(const StepCounts& counts);
  std::int64_t steps(std::size_t unit, std::size_t parameter) const { return parameter_steps().at(unit).at(parameter); }

  /// Bytes of the states on this rank.
  std::int64_t state_bytes() const;

  /// A parameter that a step updates.
  struct Updated {
    ParameterInfo info;
    ParameterGroup group;
    Segment* segment;
    std::size_t place;  // in counts_
  };

 protected:
  /// `group` is called once for each parameter, by this constructor.
  Optimizer(ShardedModel& model, std::string name, std::vector<StateSpec> states, double weight_decay,
            const GroupOf& group);

  /// Parameters with equal groups. Entries of the lists correspond.
  struct Batch {
    ParameterGroup group;
    std::vector<at::Tensor> parameters, gradients;  // 1-D fp32
    std::vector<at::Tensor> steps;                  // fp32 of one element: this update included
    std::vector<std::size_t> places;                // of the parameters in counts_
    std::vector<std::vector<at::Tensor>> states;    // as states(), each as parameters; undefined where there is none
    std::vector<ParameterInfo> infos;
    std::vector<std::int64_t> begins;  // of the slices in their parameters
  };
  struct Update {
    double lr = 0;
    std::optional<at::Tensor> lr_on_device;  // in place of lr
    double weight_decay = 0;
    std::optional<at::Tensor> grad_scale, found_inf;
  };
  /// Gives the learning rate and the weight decay of a group to an Update.
  using RateOf = std::function<Update(const ParameterGroup&)>;
  /// Updates the batch in place.
  virtual void update(Batch& /*batch*/, const Update& /*update*/) {}
  /// Updates all parameters of a step, by calling update() for each batch. An optimizer that needs other ranks does it
  /// by itself. `all` is equal on all ranks, and holds parameters of which this rank has no element. `update` has no
  /// rate.
  virtual void update_together(const std::vector<Updated>& all, const RateOf& rate, const Update& update);
  ShardedModel& model() { return model_; }
  /// The entries of a batch for which `takes` is true.
  static Batch part_of(const Batch& batch, const std::function<bool(std::size_t)>& takes);
  /// Calls LibTorch's fused kernel of Adam. The moments are the states from `first_moment` on, in fp32.
  static void fused_adam(const Batch& batch, std::size_t first_moment, const Betas& betas, double eps,
                         bool decoupled_weight_decay, const Update& update);
  /// The step counts of parameters, this update included. Waits for the device.
  std::vector<std::int64_t> steps_of(const std::vector<Updated>& all) const;

 private:
  /// Inputs that the lists were made of.
  struct Origin {
    at::Tensor shard, gradient;
    std::vector<std::uint8_t> used;
  };

  /// `rate` gives a batch's rate to an Update.
  void update_all(const std::function<void(const ParameterGroup&, Update&)>& rate, const at::Tensor& grad_scale,
                  const at::Tensor& found_inf);
  bool lists_are_current() const;
  void make_lists();
  void add_segment(std::size_t first_parameter, Segment& segment, std::vector<float>& active);
  Batch& batch_of(const ParameterGroup& group);
  void make_state(const StateSpec& state);
  void update_averages(const at::Tensor& found_inf);

  ShardedModel& model_;
  const std::string name_;
  std::vector<StateSpec> states_;
  double weight_decay_;
  double average_decay_ = 0;                // 0: no average is kept
  bool exchanged_ = false;                  // the shards hold the averages
  std::vector<std::size_t> first_of_unit_;  // place of each unit's first parameter in groups_ and counts_
  std::vector<ParameterGroup> groups_;
  std::map<int, double> rates_;  // scales by ParameterGroup::rate
  std::int64_t steps_ = 0;
  at::Tensor counts_;            // fp32, one for each parameter of the model
  at::Tensor active_;            // as counts_: 1 for parameters that the next step updates, else 0
  std::vector<Origin> origins_;  // of each segment
  std::vector<Batch> batches_;
  std::vector<Updated> updated_;
  std::vector<Unit*> updated_units_;
};

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  GroupOf group = decay_matrices;
  Moments moments = Moments::kFp32;
  /// Chooses the random bits that round moments in bf16.
  std::uint64_t seed = 0;
};

/// Adam (Kingma and Ba, arXiv 1412.6980). Weight decay is added to the gradient. The arithmetic of each element is that
/// of torch.optim.Adam(fused=True). The bias correction of a parameter uses the parameter's own step count. States:
/// "exp_avg" and "exp_avg_sq". A step makes one fused call a group. Moments of other forms have other states, see
/// Moments; their step reads found_inf and step counts, and so waits for the device.
class Adam : public Optimizer {
 public:
  explicit Adam(ShardedModel& model, const AdamOptions& options = {});
  std::string host_reads() const override { return moments_ == Moments::kFp32 ? "" : "found_inf and step counts"; }

 protected:
  Adam(ShardedModel& model, const char* name, const AdamOptions& options, bool decoupled_weight_decay);
  void update(Batch& batch, const Update& update) override;

 private:
  void update_small(const Batch& batch, const Update& update) const;

  const Betas betas_;
  const double eps_;
  const bool decoupled_weight_decay_;
  const Moments moments_;
  const std::uint64_t seed_;
};

struct AdamWOptions : AdamOptions {
  AdamWOptions() {
    beta2 = 0.95;
    weight_decay = 0.1;
  }
};

/// AdamW (Loshchilov and Hutter, arXiv 1711.05101): Adam whose weight decay shrinks the weights themselves. The
/// arithmetic of each element is that of torch.optim.AdamW(fused=True).
class AdamW : public Adam {
 public:
  explicit AdamW(ShardedModel& model, const AdamWOptions& options = {});
};

struct LionOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
  GroupOf group = decay_matrices;
};

/// Lion (Chen et al., Symbolic Discovery of Optimization Algorithms, arXiv 2302.06675, program 1): steps by the sign of
/// an average, and decays the weights themselves. Its rate is usually 3 to 10 times smaller than AdamW's, and its decay
/// as much larger. State: "exp_avg", half of what AdamW holds. A step needs the memory of one more shard for a moment.
/// A step with found_inf reads found_inf, and so waits for the device.
class Lion : public Optimizer {
 public:
  explicit Lion(ShardedModel& model, const LionOptions& options = {});
  std::string host_reads() const override { return "found_inf"; }

 private:
  void update(Batch& batch, const Update& update) override;

  const Betas betas_;
};

struct SgdOptions {
  /// Decay rate of the average of gradients. 0: no average, and no state.
  double momentum = 0;
  /// The share of a new gradient that does not enter the average. The first gradient enters it whole.
  double dampening = 0;
  /// Looks ahead along the average. Needs momentum above 0 and dampening 0.
  bool nesterov = false;
  /// Added to the gradient.
  double weight_decay = 0;
  GroupOf group = decay_matrices;
};

/// Stochastic gradient descent with momentum (Sutskever et al., On the importance of initialization and momentum in
/// deep learning). The arithmetic of each element is that of torch.optim.SGD(fused=True). State: "momentum_buffer".
/// With dampening a step reads the step counts, and so waits for the device.
class Sgd : public Optimizer {
 public:
  /// Throws c10::Error for nesterov without momentum or with dampening.
  explicit Sgd(ShardedModel& model, const SgdOptions& options = {});
  std::string host_reads() const override { return momentum_ != 0 && dampening_ != 0 ? "step counts" : ""; }

 private:
  void update(Batch& batch, const Update& update) override;

  const double momentum_, dampening_;
  const bool nesterov_;
};

}  // namespace fsdp
