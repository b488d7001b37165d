#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "fsdp/files/tensor_files.h"
#include "spec/table.h"
#include "worker/models/ops.h"

// The tensors of a model's files, as its family names them: for trainings that begin with them, and for their use.
namespace worker {

/// The names of a family for a model whose parameters `is_parameter` tells, all under `prefix` in it. `files` and
/// `values` must outlive what is returned. may_lack is the family's.
fsdp::LoadNames load_names(const FileNames& names, const spec::Values& values, const fsdp::TensorFiles& files,
                           std::function<bool(const std::string& name)> is_parameter, const std::string& prefix = {});

/// Throws fsdp::UnfitTensors naming both tensors and the remedy where two tensors that must be equal (equal_to) differ.
/// Reads both whole, in pieces. Files without such a pair cost nothing.
void check_equal_tensors(const FileNames& names, const spec::Values& values, const fsdp::TensorFiles& files);

/// The names of the tensors in a folder. Null where the files cannot be read; loading them tells why.
std::shared_ptr<const std::set<std::string, std::less<>>> tensor_names(const std::filesystem::path& folder);

}  // namespace worker
