#pragma once

#include <cstdint>
#include <vector>

#include "spec/table.h"

namespace spec {

// Rules that several families of models share.

/// Without a model.max_position_embeddings the longest sequence is `usual`, or the data's if that is longer.
void derive_positions(Values& values, std::int64_t usual);

/// Adds a contradiction if the data's rows are longer than the model's longest sequence.
void want_positions(const Values& values, std::vector<Conflict>& conflicts);

/// Adds a contradiction if the heads do not share the width evenly. Returns whether they do. `heads` is above 0.
bool want_even_heads(std::int64_t hidden, std::int64_t heads, std::vector<Conflict>& conflicts);

}  // namespace spec
