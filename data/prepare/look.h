#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <ostream>

#include "data/format/dataset.h"
#include "data/prepare/prepare_options.h"
#include "data/prepare/progress.h"

namespace data::prepare {

/// Prints what a folder holds. Throws std::runtime_error as format::read_description() does.
void show(const ShowOptions& options, std::ostream& out);

/// Files of a folder, for the progress of check(). Throws as show() does.
std::int64_t files_of(const CheckOptions& options);

/// Reads every byte: headers and indexes, the checksum of each block, data.json's own account of the files, the
/// fingerprint and the copied tokenizer. Prints one line if all is whole. Returns false if `stop` became other than 0.
/// Throws std::runtime_error naming file, block and remedy for the first damage.
bool check(const CheckOptions& options, Progress& progress, const std::atomic<int>& stop, std::ostream& out);

/// Reads the same bytes as check(), without a word. `on_file` is called after each file. Throws and returns as check().
bool check_bytes(const std::filesystem::path& folder, const std::atomic<int>& stop,
                 const std::function<void(const format::FileInfo& file)>& on_file = {});

/// Prints one record. Throws std::runtime_error naming folder, split and record if there is none such.
void decode(const DecodeOptions& options, std::ostream& out);

}  // namespace data::prepare
