#include "worker/train/step_measures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/usage_error.h"

namespace worker {

std::vector<agent::rank::SeriesValue> StepMeasures::values() const {
  std::vector<agent::rank::SeriesValue> out{{"loss", loss}};
  out.insert(out.end(), more.begin(), more.end());
  out.insert(out.end(), evaluated.begin(), evaluated.end());
  if (tokens_per_s) out.push_back({"tokens_per_s", *tokens_per_s});
  if (samples_per_s) out.push_back({"samples_per_s", *samples_per_s});
  out.push_back({"learning_rate", learning_rate});
  out.push_back({"grad_norm", grad_norm});
  if (loss_scale) out.push_back({"loss_scale", *loss_scale});
  if (skipped_steps > 0) out.push_back({"skipped_steps", static_cast<double>(skipped_steps)});
  if (gpu_memory) {
    out.push_back({"gpu_memory_peak", static_cast<double>(gpu_memory->peak_bytes)});
    out.push_back({"gpu_memory_reserved", static_cast<double>(gpu_memory->reserved_bytes)});
  }
  const auto add = [&out](const char* series, const auto& value) {
    if (value) out.push_back({series, static_cast<double>(*value)});
  };
  add("wait_ms", wait_ms);
  add("data_wait_ms", data_wait_ms);
  add("gathered_bytes", gathered_bytes);
  add("scattered_bytes", scattered_bytes);
  add("tensor_peak_bytes", tensor_peak_bytes);
  return out;
}

std::optional<double> value_of(const std::vector<agent::rank::SeriesValue>& values, std::string_view series) {
  const auto found = std::ranges::find(values, series, &agent::rank::SeriesValue::series);
  return found == values.end() ? std::nullopt : std::optional(found->value);
}

std::string line_of(const KeptTensors& kept, std::optional<std::int64_t> peak_bytes) {
  const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  char line[256];
  std::snprintf(line, sizeof line,
                "tensors: parameters %.1f MiB, gradients %.1f MiB, optimizer %.1f MiB, pool %.1f MiB",
                mib(kept.parameters), mib(kept.gradients), mib(kept.states), mib(kept.pool));
  std::string text = line;
  if (!peak_bytes) return text;
  const std::int64_t rest = *peak_bytes - kept.parameters - kept.gradients - kept.states - kept.pool;
  std::snprintf(line, sizeof line, ", activations and others %.1f MiB; together at most %.1f MiB",
                mib(std::max<std::int64_t>(rest, 0)), mib(*peak_bytes));
  return text + line;
}

std::string line_of(const agent::rank::StepReport& report, const StepMeasures& measures, std::int64_t steps) {
  std::string found;
  for (const auto* list : {&measures.more, &measures.evaluated}) {
    for (const auto& [series, value] : *list) {
      char text[64];
      std::snprintf(text, sizeof text, " %.6f", value);
      found += " " + (series == "validation/loss" ? "validation_loss" : series) + text;
    }
  }
  char gpu[64] = "";
  if (measures.gpu_memory) {
    std::snprintf(gpu, sizeof gpu, " gpu_memory_mib %lld",
                  static_cast<long long>(measures.gpu_memory->peak_bytes >> 20));
  }
  char head[128], tail[384];
  std::snprintf(head, sizeof head, "step %lld/%lld loss %.6f", static_cast<long long>(report.step),
                static_cast<long long>(steps), measures.loss);
  std::snprintf(tail, sizeof tail, " lr %.3e grad_norm %.4f %s %.0f step_ms %.1f memory_mib %lld%s",
                measures.learning_rate, measures.grad_norm, measures.tokens_per_s ? "tokens/s" : "samples/s",
                measures.tokens_per_s ? *measures.tokens_per_s : measures.samples_per_s.value_or(0), report.step_ms,
                static_cast<long long>(report.memory_bytes >> 20), gpu);
  return head + found + tail;
}

bool SkippedSteps::note(std::int64_t step, double loss, double grad_norm, bool scale_falls) {
  if (std::isfinite(grad_norm)) {
    in_a_row_ = 0;
    return false;
  }
  const std::string what = "step " + std::to_string(step) + " is skipped: the loss is " + std::to_string(loss) +
                           " and the gradient's norm " + std::to_string(grad_norm);
  if (scale_falls && std::isfinite(loss)) {
    ++total_;
    line_ = what + "; the scale of the loss falls";
    return true;
  }
  if (++in_a_row_ > most_in_a_row_) {
    throw base::UsageError(what + "; so it was in " + std::to_string(in_a_row_) +
                           " steps in a row, and train.max_skipped_steps is " + std::to_string(most_in_a_row_) +
                           "; lower train.learning_rate or lengthen train.warmup_steps");
  }
  ++total_;
  line_ = what + " (" + std::to_string(in_a_row_) + " in a row, at most " + std::to_string(most_in_a_row_) + ")";
  return true;
}

}  // namespace worker
