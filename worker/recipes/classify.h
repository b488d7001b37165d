#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/tables/text_recipe_keys.h"
#include "worker/train/start_weights.h"

namespace worker {

/// Which row of a classifier's last layer belongs to each label of the data.
struct ClassRows {
  std::vector<std::string> labels;   ///< by row
  std::vector<std::int64_t> row_of;  ///< by number of the label in the data
  bool is_drawn = false;             ///< the last layer is drawn although the files have one

  /// Values by label of the data, in the order of the rows. Empty stays empty.
  std::vector<double> by_row(const std::vector<double>& by_label) const;
};

/// The rows for data with these labels. A model without a classifier in its files, or with drawn weights, has a row for
/// each label in the order of the data. Otherwise train.head says which row is whose. In a checkpoint the rows have the
/// names that its config.json gives them.
///
/// Throws base::UsageError naming the labels of both sides, the key and its values where the rows of the file do not
/// fit the data.
ClassRows class_rows(const ChosenModel& model, const std::vector<std::string>& labels, spec::ClassHead head);

}  // namespace worker
