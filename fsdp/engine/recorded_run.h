#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/custom_class.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "fsdp/engine/unit.h"

namespace fsdp {

/// One run of a unit that autograd has recorded: a stretch of graph between the run's inputs and its outputs. Hooks and
/// nodes of the graph hold it, so it lives as long as its graph. A graph that is dropped takes its runs along.
///
/// [Note: second order] A backward with create_graph records the unit's backward too. That stretch of graph needs the
/// unit's parameters as a run does, and is a RecordedRun of its own: its inputs are the gradients of the outputs, and
/// its outputs are the gradients of the inputs.
struct RecordedRun : torch::CustomClassHolder {
  RecordedRun(const std::shared_ptr<Unit>& of, std::int64_t version);
  ~RecordedRun() override;

  /// Links `inputs` to this run: their backward ends the run. Returns `inputs` with those replaced that need a
  /// gradient.
  static void link_inputs(const c10::intrusive_ptr<RecordedRun>& self, std::vector<at::Tensor>& inputs);
  /// Makes the backward of `output` begin the run. Returns whether it will.
  static bool hook_output(const c10::intrusive_ptr<RecordedRun>& self, const at::Tensor& output);
  /// The backward of the run's inputs has come.
  void leave();
  /// True if a backward with these nodes reaches the run.
  bool is_in(const std::unordered_set<torch::autograd::Node*>& nodes) const;

  std::weak_ptr<Unit> unit;
  std::int64_t parameter_version;
  torch::autograd::Node* last_node = nullptr;  // its backward ends the run; null without an input that needs a gradient
  std::vector<torch::autograd::Node*> output_nodes;
  bool awaited = false;   // the current backward has begun the unit and has yet to end this run
  int left_in_task = -1;  // the backward that ended this run last
  std::vector<c10::intrusive_ptr<RecordedRun>> second_order;
};

}  // namespace fsdp
