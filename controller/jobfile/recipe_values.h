#pragma once

#include <vector>

#include "muster/v1/job.pb.h"
#include "schema/recipes.h"

namespace jobfile {

/// The tables of keys that the recipe's kind and family use; empty: there is no such kind or family.
std::vector<const schema::Table*> tables_of(const muster::v1::Recipe& recipe);

/// The recipe's values whose keys are in these tables, converted to the keys' kinds. Values that do not fit are left
/// out; validate() reports them.
schema::Values values_of(const muster::v1::JobSpec& spec, const std::vector<const schema::Table*>& tables);

}  // namespace jobfile
