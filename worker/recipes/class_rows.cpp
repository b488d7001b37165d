#include "worker/recipes/class_rows.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>

#include "base/usage_error.h"
#include "worker/models/bert/hf.h"

namespace worker {
namespace {

constexpr const char* kHeadWeight = "classifier.weight";

ClassRows in_order_of(const std::vector<std::string>& labels) {
  ClassRows out{.labels = labels, .row_of = std::vector<std::int64_t>(labels.size())};
  std::iota(out.row_of.begin(), out.row_of.end(), 0);
  return out;
}

/// The names of the file's rows. transformers names a row LABEL_3 where nobody has named it, so that data whose labels
/// are numbers fit.
std::vector<std::string> names_of_rows(const ChosenModel& model) {
  try {
    return bert_labels(model.files.config);
  } catch (const std::invalid_argument& error) {
    throw base::UsageError("model.pretrained = \"" + model.pretrained.native() + "\": " + error.what());
  }
}

std::string plain_name(const std::string& name) {
  static constexpr std::string_view kUnnamed = "LABEL_";
  return name.starts_with(kUnnamed) ? name.substr(kUnnamed.size()) : name;
}

/// Empty where the names are not the same.
std::vector<std::int64_t> rows_by_name(const std::vector<std::string>& rows, const std::vector<std::string>& labels) {
  std::map<std::string, std::int64_t, std::less<>> row_of;
  for (const auto& name : rows) row_of.emplace(plain_name(name), static_cast<std::int64_t>(row_of.size()));
  std::vector<std::int64_t> out;
  if (row_of.size() != rows.size() || rows.size() != labels.size()) return out;
  for (const auto& label : labels) {
    const auto found = row_of.find(plain_name(label));
    if (found == row_of.end()) return {};
    out.push_back(found->second);
  }
  return out;
}

std::string list_of_labels(const std::vector<std::string>& labels) {
  constexpr std::size_t kMostShown = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(labels.size(), kMostShown); ++i)
    text += (i == 0 ? "\"" : ", \"") + labels[i] + "\"";
  return labels.size() > kMostShown ? text + " and " + std::to_string(labels.size() - kMostShown) + " more" : text;
}

[[noreturn]] void refuse_rows(const ChosenModel& model, const std::vector<std::string>& rows,
                              const std::vector<std::string>& labels) {
  throw base::UsageError(
      "model.pretrained = \"" + model.pretrained.native() + "\": its classifier has the labels " +
      list_of_labels(rows) + ", and the data have " + list_of_labels(labels) +
      "; set train.head = \"new\" to draw the classifier's last layer anew" +
      (rows.size() == labels.size() ? ", or \"by_number\" if its rows are in the order of the data's labels" : ""));
}

}  // namespace

std::vector<double> ClassRows::by_row(const std::vector<double>& by_label) const {
  std::vector<double> out(by_label.size());
  for (std::size_t label = 0; label < by_label.size(); ++label)
    out[static_cast<std::size_t>(row_of[label])] = by_label[label];
  return out;
}

ClassRows class_rows(const ChosenModel& model, const std::vector<std::string>& labels, spec::ClassHead head) {
  ClassRows out = in_order_of(labels);
  const bool is_known = model.files.tensors != nullptr;
  if (model.files.config.is_null() || (is_known && !model.files.has(kHeadWeight))) return out;
  out.is_drawn = is_known && head == spec::ClassHead::kNew;
  if (out.is_drawn) return out;
  const auto rows = names_of_rows(model);
  if (is_known && head == spec::ClassHead::kByNumber) {
    if (rows.size() != labels.size()) refuse_rows(model, rows, labels);
    return out;
  }
  const auto by_name = rows_by_name(rows, labels);
  if (by_name.empty()) {
    if (is_known) refuse_rows(model, rows, labels);
    return out;  // a plan without the files, or a checkpoint of other data, which the resume refuses
  }
  out.row_of = by_name;
  for (std::size_t label = 0; label < labels.size(); ++label)
    out.labels[static_cast<std::size_t>(by_name[label])] = labels[label];
  return out;
}

}  // namespace worker
