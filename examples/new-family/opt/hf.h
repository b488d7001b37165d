#pragma once

#include "worker/models/family.h"

namespace worker {

/// OPT as transformers stores it: OPTForCausalLM with norms before attention and feed-forward, as all sizes but 350m
/// have it.
const Family& opt_family();

}  // namespace worker
