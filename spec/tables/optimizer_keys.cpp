#include "spec/tables/optimizer_keys.h"

#include <array>
#include <optional>

#include "spec/tables/shared_rules.h"

namespace spec {
namespace {

constexpr auto kKeys = std::to_array<Key>({
    row::choice("train.optimizer", "adamw", "adamw adam sgd lion adafactor muon",
                "How gradients change the weights; muon moves the matrices of layers, and adamw the rest.",
                into<&Optimizer::kind>),
    row::real("train.weight_decay", derived("0.1 with adamw, lion and muon, 0 with adam, sgd and adafactor"), {0, 1000},
              "Weight decay, applied to matrices only; part of the gradient with adam and sgd.",
              into<&Optimizer::weight_decay>),
    row::choice("train.weight_decay_schedule", "constant", "constant cosine linear",
                "How the weight decay goes from weight_decay to final_weight_decay.",
                into<&Optimizer::weight_decay_schedule>),
    row::real("train.final_weight_decay", derived("weight_decay"), {0, 1000}, "Weight decay at the last step.",
              into<&Optimizer::final_weight_decay>),
    row::real("train.beta1", derived("0.9 with adamw, adam, lion and muon"), {0, 0.999999},
              "Decay rate of the average of gradients; not with sgd and adafactor.", into<&Optimizer::beta1>),
    row::real("train.beta2", derived("0.95 with adamw and muon, 0.999 with adam, 0.99 with lion"), {0, 0.999999},
              "Decay rate of the average of squared gradients; of the kept average with lion; not with sgd and "
              "adafactor.",
              into<&Optimizer::beta2>),
    row::real("train.epsilon", derived("1e-8 with adamw, adam and muon"), above(0, 0.1),
              "Keeps a division from exploding; with adamw, adam and muon only.", into<&Optimizer::epsilon>),
    row::choice(
        "train.moments", derived("fp32 with adamw and adam"), "fp32 bf16 int8",
        "Number format of Adam's two averages between steps: 8 bytes an element in fp32, 4 in bf16 with stochastic "
        "rounding, 2 in int8 in blocks of 256, where parameters of fewer than 4096 elements stay in fp32; with "
        "adamw and adam only.",
        into<&Optimizer::moments>),
    row::real("train.momentum", derived("0.9 with sgd, 0.95 with muon"), {0, 0.999999},
              "Decay rate of the average of gradients; with sgd and muon only.", into<&Optimizer::momentum>),
    row::real("train.dampening", derived("0 with sgd"), {0, 1},
              "Share of a new gradient that does not enter the average; with sgd only.", into<&Optimizer::dampening>),
    row::flag("train.nesterov", derived("false with sgd, true with muon"),
              "Whether to look ahead along the average; with sgd and muon only.", into<&Optimizer::nesterov>),
    row::real("train.layer_decay", "1", above(0, 1),
              "Factor of the learning rate from each layer to the one below; 1: one rate for all.",
              into<&Optimizer::layer_decay>),
    row::real("train.average_decay", "0", {0, 0.999999},
              "Decay rate of a moving average of the weights (EMA), which is evaluated and exported in their place; 0: "
              "none. Checkpoints hold both.",
              into<&Optimizer::average_decay>),
});

/// A key that some optimizers have, and its default for each; nullopt in a place: that optimizer has no such key.
struct Choice {
  std::string_view key;
  std::array<std::optional<Value>, 6> standard;  // in the order of OptimizerKind
};

const std::array<Choice, 8>& choices() {
  static constexpr auto kNone = std::nullopt;
  static const std::string fp32 = "fp32";
  static const std::array<Choice, 8> all{{
      {"train.weight_decay", {0.1, 0.0, 0.0, 0.1, 0.0, 0.1}},
      {"train.beta1", {0.9, 0.9, kNone, 0.9, kNone, 0.9}},
      {"train.beta2", {0.95, 0.999, kNone, 0.99, kNone, 0.95}},
      {"train.epsilon", {1e-8, 1e-8, kNone, kNone, kNone, 1e-8}},
      {"train.moments", {fp32, fp32, kNone, kNone, kNone, kNone}},
      {"train.momentum", {kNone, kNone, 0.9, kNone, kNone, 0.95}},
      {"train.dampening", {kNone, kNone, 0.0, kNone, kNone, kNone}},
      {"train.nesterov", {kNone, kNone, false, kNone, kNone, true}},
  }};
  return all;
}

constexpr const Key& kKind = kKeys.front();

std::string leaf_of(std::string_view key) {
  return std::string(key.substr(key.find('.') + 1));
}

void derive(Values& values, std::uint64_t /*ranks*/) {
  const auto kind = choice_index(kKind.choices, values.text(kKind.name));
  if (!kind) return;
  for (const Choice& choice : choices()) {
    const auto& standard = choice.standard[*kind];
    if (standard) set_default(values, choice.key, *standard);
  }
  set_default(values, "train.final_weight_decay", values.real("train.weight_decay"));
}

void check(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  const auto name = values.text(kKind.name);
  const auto kind = choice_index(kKind.choices, name);
  if (!kind) return;
  for (const Choice& choice : choices()) {
    if (choice.standard[*kind] || !values.has(choice.key)) continue;
    add_conflict(conflicts, choice.key, "want no " + leaf_of(choice.key) + " with optimizer = \"" + name + "\"",
                 "leave it out, or choose another train.optimizer", {kKind.name});
  }
  const auto options = bind<Optimizer>(optimizer(), values);
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    add_conflict(conflicts, "train.nesterov", "want no nesterov with momentum 0 or with dampening",
                 "set momentum above 0 and dampening to 0, or leave nesterov out",
                 {"train.momentum", "train.dampening"});
  }
  if (options.weight_decay_schedule == WeightDecaySchedule::kConstant &&
      options.final_weight_decay != options.weight_decay) {
    add_conflict(conflicts, "train.final_weight_decay",
                 "want weight_decay = " + print({.kind = Kind::kReal}, options.weight_decay) +
                     " with weight_decay_schedule = \"constant\"",
                 "set weight_decay_schedule = \"cosine\" or \"linear\", or leave it out",
                 {"train.weight_decay", "train.weight_decay_schedule"});
  }
}

}  // namespace

const Table& optimizer() {
  static const Table table{"optimizer", kKeys, derive, check};
  return table;
}

}  // namespace spec
