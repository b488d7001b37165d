#pragma once

#include <string>

#include "agent/rank/environment.h"
#include "tests/worker/temporary_folder.h"
#include "worker/train/train_config.h"

namespace worker::testing {

/// A run with groups of keys. Members are added with a leading comma.
struct Settings {
  std::string model = "", train = "", fsdp = "", checkpoint = "";
};

inline RunConfig config_of(const TemporaryFolder& folder, const Settings& with) {
  return parse_run_config(
      R"({"format":1,"name":"test","model":{"hidden_size":128,"intermediate_size":352,"num_hidden_layers":6,
      "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":128)" +
      with.model + R"(},"data":{"source":"fixture","sequence_length":128,"cache_folder":")" +
      (folder / "cache").native() + R"("},"train":{"learning_rate":0.003,"warmup_steps":0,"seed":0,
      "validation_every_steps":0,"steps":3)" +
      with.train + R"(},"fsdp":{"shared_memory":false)" + with.fsdp + R"(},"checkpoint":{"every_steps":0,"folder":")" +
      (folder / "checkpoints").native() + "\"" + with.checkpoint + "}}");
}

inline agent::rank::RankEnvironment place_of(int world_size, int local_world_size = 0) {
  agent::rank::RankEnvironment place;
  place.world_size = world_size;
  place.local_world_size = local_world_size > 0 ? local_world_size : world_size;
  return place;
}

}  // namespace worker::testing
