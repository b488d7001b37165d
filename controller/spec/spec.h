#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/v1/job.pb.h"

namespace spec {

/// Sets every absent field to its default. A job without a program gets no recipe: validate() tells. Doing it twice
/// changes nothing.
///
/// | key | default |
/// |---|---|
/// | resources | nodes 1, ranks_per_node 1, stop_grace 30s; no time limit, no CPU limit, no GPUs |
/// | environment | submit for a command, clean for a recipe |
/// | checkpoint | every_steps 100, keep 3; folder stays empty: the controller chooses |
/// | requeue | max_failed 3, max_rank_silent 5, max_rank_hung 2, max_preempted 1000, max_timed_out 3, |
/// |         | max_node_failed 10, max_out_of_memory 1, max_same_error 1, max_controller_lost 5, |
/// |         | backoff 1s doubling to 5m, healthy_after 10m |
/// | liveness | heartbeat_interval 500ms, silent_after 2500ms, silent_after_vouched 15s, hung_after 30m, |
/// |          | join_within 2m |
/// | model | Llama: hidden 256, intermediate 688, layers 4, heads 4, key/value heads = heads, positions 2048 or the
/// |       | sequence length if longer, rope_theta 10000, rms_norm_eps 1e-5, untied, initializer_range 0.02;
/// |       | vocab_size stays absent: the data decide |
/// | data | source auto, sequence_length 256, validation_fraction 0.05, max_bytes 16MiB |
/// | train | causal_lm, steps 1000, batch_size = micro_batch_size x ranks, micro_batch_size 8 (or the largest up to 8
/// |       | that fits a given batch_size), learning_rate 3e-4 falling to a tenth by cosine, warmup_steps
/// |       | min(100, steps / 10), weight_decay 0.1, betas 0.9 and 0.95, epsilon 1e-8, clip_norm 1, seed 1, fp32,
/// |       | validation of 8 batches every 100 steps |
/// | fsdp | reshard_after_forward true, prefetch true |
///
/// The constants are in fields.cpp, the derived ones in defaults.cpp.
void fill_defaults(muster::v1::JobSpec& spec);

/// One thing wrong with a job. Printed as: `field "value": want message; remedy`.
struct Problem {
  std::string field;                 // key of the job file: "train.batch_size", "env.PATH"; "" for the job as a whole
  std::string value;                 // as people write it: "12h"
  std::string message;               // what is wanted: "want a multiple of 16 (8 a micro-batch x 2 ranks)"
  std::string remedy;                // what to do: "try 16 or 32"; may be empty
  std::vector<std::string> related;  // other keys that the judgement rests on
};
std::string to_string(const Problem& problem);

/// Whether folders that must exist are looked for: only where the job would run on this machine.
enum class FileChecks { kSkip, kLook };

/// Everything wrong with a spec whose defaults are filled in; empty if it is fine. At most kMostProblems.
std::vector<Problem> validate(const muster::v1::JobSpec& spec, FileChecks checks);
inline constexpr std::size_t kMostProblems = 20;

/// Whether ranks find this variable set by muster itself, whatever the job file says.
bool is_set_by_muster(const muster::v1::JobSpec& spec, std::string_view variable);

/// nodes x ranks_per_node.
inline constexpr std::uint64_t kMostRanks = 4096;
std::uint64_t world_size(const muster::v1::JobSpec& spec);

}  // namespace spec
