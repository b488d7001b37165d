#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

namespace worker {

using Tensors = std::vector<at::Tensor>;

/// A part of a model as a function of its differentiable inputs. Tensors that it captures get no gradient where a
/// wrapper recomputes it.
using Forward = std::function<Tensors(Tensors inputs)>;

/// How a part of a model is called. The owner of the call (a sharding unit, activation checkpointing) may act before
/// and after, may call `forward` again during backward, and may nest another wrapper. The wrapper must return what
/// `forward` returns.
using CallWrapper = std::function<Tensors(Tensors inputs, const Forward& forward)>;

/// The default wrapper: calls `forward` and does nothing else.
inline Tensors call_directly(Tensors inputs, const Forward& forward) {
  return forward(std::move(inputs));
}

/// Calls `forward`, a function of one tensor, through a wrapper.
template <class OfOne>
at::Tensor call(const CallWrapper& wrapper, at::Tensor input, OfOne forward) {
  return wrapper({std::move(input)},
                 [forward = std::move(forward)](Tensors inputs) { return Tensors{forward(std::move(inputs[0]))}; })[0];
}

/// `inner` inside of `outer`.
inline CallWrapper nested(CallWrapper outer, CallWrapper inner) {
  return [outer = std::move(outer), inner = std::move(inner)](Tensors inputs, const Forward& forward) {
    return outer(std::move(inputs), [inner, forward](Tensors passed) { return inner(std::move(passed), forward); });
  };
}

}  // namespace worker
