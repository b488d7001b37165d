#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/files/safetensors.h"

namespace fsdp {

/// The names that Hugging Face gives to the files of a model.
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kModelIndex = "model.safetensors.index.json";

/// The files hold other tensors than the model needs. Another try gives the same.
class UnfitTensors : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The whole tensors of a model in safetensors files, as Hugging Face stores them. Headers are read at once, tensors
/// only as far as they are asked for.
class TensorFiles {
 public:
  /// `path` is a safetensors file, or a folder with kModelFile, or with kModelIndex and the files that the index names.
  /// Throws UnfitTensors for a folder without these, and for a wrong index. Throws c10::Error naming a file that cannot
  /// be read.
  explicit TensorFiles(const std::filesystem::path& path);

  struct Place {
    const SafetensorsReader* file = nullptr;
    TensorEntry entry;
  };
  const std::map<std::string, Place, std::less<>>& tensors() const { return tensors_; }
  const std::filesystem::path& path() const { return path_; }
  std::size_t file_count() const { return files_.size(); }

 private:
  void add(const std::filesystem::path& file);
  void check_index(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::map<std::string, std::unique_ptr<SafetensorsReader>> files_;  // by file name
  std::map<std::string, Place, std::less<>> tensors_;
};

/// How the tensors of files belong to the parameters of a model. Must answer alike on every rank.
struct LoadNames {
  /// The name in the model of a tensor. Null: the tensor's own.
  std::function<std::string(const std::string& in_file)> parameter_of = {};
  /// Tells whether a tensor may be left over: the model has no such parameter, or another tensor is given for it. A
  /// tensor that the model needs is read all the same. Null: none may.
  std::function<bool(const std::string& in_file)> may_ignore = {};
  /// Tells whether the files may lack a parameter, named as ParameterInfo::name. The parameter keeps its values, or
  /// stays without. Null: none may.
  std::function<bool(const std::string& parameter)> may_lack = {};
};

/// Gives the parameters of the model their values from `files`. Each rank reads the byte ranges of its own slices, and
/// converts float32, bfloat16 and float16. A tied parameter is found under any of its names. Of several tensors for one
/// parameter the one with the parameter's own name is taken, otherwise one that may not be ignored. Returns the
/// parameters that the files lack, in the order of the units; see initialize() for drawing them. Throws UnfitTensors,
/// before anything is changed, that names each tensor that is missing, has another shape or dtype, is no parameter of
/// the model, or is given for a parameter beside another one, with the remedy. Not collective.
std::vector<std::string> load_tensors(ShardedModel& model, const TensorFiles& files, const LoadNames& names);
/// Loads in the same way under the names of the files. The files lack nothing.
void load_tensors(ShardedModel& model, const TensorFiles& files,
                  const std::function<bool(const std::string& name)>& may_ignore = {});

}  // namespace fsdp
