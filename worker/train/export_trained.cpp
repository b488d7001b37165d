#include "train/export_trained.h"

#include <c10/util/Exception.h>

#include "fsdp/export.h"
#include "rank/errors.h"
#include "train/averaged_weights.h"
#include "train/strategy.h"

namespace worker {
namespace {

at::ScalarType exported_dtype(const RunConfig& config) {
  switch (config.exports.dtype) {
    case schema::ExportedDtype::kFp32:
      return at::kFloat;
    case schema::ExportedDtype::kBf16:
      return at::kBFloat16;
    case schema::ExportedDtype::kFp16:
      return at::kHalf;
    case schema::ExportedDtype::kTrained:
      break;
  }
  return dtype_of(config.train.precision);
}

}  // namespace

void check_export(const RunConfig& config) {
  if (config.exports.folder.empty()) return;
  try {
    fsdp::check_export_folder(config.exports.folder);
  } catch (const c10::Error& error) {
    throw UsageError(std::string("train.export_folder: ") + error.what_without_backtrace());
  }
}

std::string export_trained(const RunConfig& config, Recipe& recipe, Parts& parts) {
  if (config.exports.folder.empty()) return {};
  fsdp::ExportOptions options;
  options.folder = config.exports.folder;
  options.max_file_bytes = config.exports.file_bytes;
  options.dtype = exported_dtype(config);
  AveragedWeights averaged(parts.optimizer());
  fsdp::ShardedModel& model = recipe.exported(parts, options);
  const fsdp::ExportedModel out = fsdp::export_model(model, options);
  averaged.end();
  return "exported the model to " + config.exports.folder + " (" + std::to_string(out.files.size()) +
         (out.files.size() == 1 ? " file, " : " files, ") + std::to_string(out.bytes >> 20) + " MiB)";
}

}  // namespace worker
