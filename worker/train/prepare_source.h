#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/command.h"
#include "worker/batch/prepared_data.h"
#include "worker/train/train_config.h"

namespace worker {

/// The tokenizer whose ids a run's model knows: that of data.tokenizer, or else of model.pretrained if a tokenizer lies
/// there. nullopt: the data's own is as good as any. Throws base::UsageError naming the key where there is no such
/// file, or one that is too large for a tokenizer.
std::optional<ModelTokenizer> tokenizer_of(const RunConfig& config);

/// The source that the run file asks for, for messages: data.source = "folder", data.path = "/text".
std::string source_text(const DataConfig& data);

/// data.cache_folder, or this user's own cache.
std::filesystem::path cache_folder_of(const DataConfig& data);

/// The folder of prepared data that the program muster-data makes of data.source, in the cache folder. Data that are
/// there already are used; of several processes that ask at once, one makes them. All records are in the split train.
/// `tokenizer`: none is the byte vocabulary.
///
/// Throws base::UsageError with muster-data's own words where source or tokenizer is wrong, and where there is no
/// muster-data beside this program or in PATH. Throws std::runtime_error for anything else, which may pass.
std::filesystem::path prepare_source(const DataConfig& data, const std::optional<ModelTokenizer>& tokenizer,
                                     base::CommandRunner& runner);

/// The folder that prepare_source() would give, whether it is there or not. Throws as prepare_source().
std::filesystem::path name_of_source(const DataConfig& data, const std::optional<ModelTokenizer>& tokenizer,
                                     base::CommandRunner& runner);

/// The folder in the cache whose data have this fingerprint and are whole, all of which are read; nullopt: there is
/// none.
std::optional<std::filesystem::path> find_prepared(const std::string& fingerprint, const std::filesystem::path& cache);

}  // namespace worker
