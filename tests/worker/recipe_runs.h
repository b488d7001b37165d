#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fsdp/files/checkpoint.h"
#include "fsdp/files/safetensors.h"
#include "tests/worker/batch_folders.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/step_measures.h"

// Helpers of tests that train recipes on folders of prepared data.
namespace worker::testing {

inline const std::string kBert =
    R"("hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":4,)"
    R"("hidden_dropout_prob":0,"attention_probs_dropout_prob":0)";
inline const std::string kT5 = R"("d_model":32,"d_kv":8,"d_ff":48,"num_layers":2,"num_heads":4,"dropout_rate":0)";
inline const std::string kDino =
    R"("hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,"image_size":16,"patch_size":4)";

/// A training on a folder. Members of tables are added with a leading comma.
inline RunConfig run(const std::string& recipe, const std::string& model, const std::filesystem::path& data,
                     const std::filesystem::path& folder, const std::string& train, const std::string& more_data = "") {
  return parse_run_config(R"({"format":1,"name":"test","recipe":")" + recipe + R"(","model":{)" + model +
                          R"(},"data":{"prepared":")" + data.native() + "\"" + more_data +
                          R"(},"train":{"learning_rate":0.005,"batch_size":12,"warmup_steps":0,)"
                          R"("validation_every_steps":10,"seed":3)" +
                          train + R"(},"checkpoint":{"every_steps":0,"folder":")" + (folder / "checkpoints").native() +
                          "\"}}");
}

inline std::vector<double> values(const std::vector<agent::rank::StepReport>& steps, const std::string& series) {
  std::vector<double> out;
  for (const auto& step : steps) {
    if (const auto value = value_of(step.values, series)) out.push_back(*value);
  }
  return out;
}

/// Tensors of a checkpoint: "<part>/parameter/<name>" and the optimizer's states, flattened. Read without the engine's
/// loading: the files of the ranks are put together in the order of the ranks.
inline std::map<std::string, at::Tensor> tensors_of(const fsdp::CheckpointInfo& checkpoint) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint.path)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  EXPECT_EQ(files.size(), static_cast<std::size_t>(checkpoint.world_size));
  std::map<std::string, at::Tensor> out;
  for (const auto& file : files) {
    const fsdp::SafetensorsReader reader(file);
    for (const auto& [name, entry] : reader.entries()) {
      if (name.starts_with("rank/")) continue;
      at::Tensor& whole = out[name];
      whole = whole.defined() ? at::cat({whole, reader.tensor(name)}) : reader.tensor(name).clone();
    }
  }
  return out;
}

/// The tensors of the newest checkpoint of a folder.
inline std::map<std::string, at::Tensor> newest_tensors(const std::filesystem::path& folder) {
  const auto newest = fsdp::latest_valid(folder);
  EXPECT_TRUE(newest) << "no checkpoint in " << folder;
  return newest ? tensors_of(*newest) : std::map<std::string, at::Tensor>();
}

/// A run in one go, and the same run in two parts.
struct WholeAndParts {
  std::vector<agent::rank::StepReport> steps;  ///< of the whole run
  std::map<std::string, at::Tensor> whole;     ///< its last checkpoint
  std::map<std::string, at::Tensor> parts;     ///< the last checkpoint of the run in parts
};

/// A run of 2 ranks, and the same run stopped after `stop` steps and continued by 3 ranks. Both must tell the same
/// losses, within the tolerance.
inline WholeAndParts whole_and_in_parts(const std::function<RunConfig(const TemporaryFolder&)>& config_in, int stop,
                                        double tolerance) {
  const TemporaryFolder whole_folder, folder;
  std::vector<Listener> whole(2), first(2), rest(3);
  train(config_in(whole_folder), whole);
  first[0].save_at = stop;
  train(config_in(folder), first);
  train(config_in(folder), rest, 2);
  auto curve = values(first[0].steps, "loss");
  EXPECT_EQ(curve.size(), static_cast<std::size_t>(stop));
  const auto more = values(rest[0].steps, "loss");
  curve.insert(curve.end(), more.begin(), more.end());
  EXPECT_THAT(curve, ::testing::Pointwise(::testing::DoubleNear(tolerance), values(whole[0].steps, "loss")));
  return {whole[0].steps, newest_tensors(whole_folder / "checkpoints"), newest_tensors(folder / "checkpoints")};
}

/// Pairs of bytes whose texts end.
inline void of_bytes(data::format::Description& description) {
  description.tokenizer_kind = "bytes";
  description.vocabulary = 257;
  description.eos = 256;
  description.suffix = {256};
}

/// The target is the input's first tokens.
inline Records pairs(std::int64_t count) {
  Records out;
  for (std::int64_t i = 0; i < count; ++i) {
    Ids input, target;
    for (std::uint32_t k = 0; k < 6; ++k) input.push_back(40 + (static_cast<std::uint32_t>(i) * 11 + k * k) % 50);
    target.assign(input.begin(), input.begin() + 2);
    out.push_back({{input, target}});
  }
  return out;
}

}  // namespace worker::testing
