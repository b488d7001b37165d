#include "fsdp/files/tensor_files.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "fsdp/text/json.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostIndexBytes = 256 << 20;
constexpr int kMostTold = 50;  // findings in one error

Json read_json(const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  TORCH_CHECK(!error, "cannot read ", path.string(), ": ", error.message());
  TORCH_CHECK(bytes <= kMostIndexBytes, path.string(), " has ", bytes, " bytes, an index at most ", kMostIndexBytes);
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  TORCH_CHECK(in, "cannot read ", path.string());
  try {
    return Json::parse(text.str());
  } catch (const JsonError& cause) {
    throw UnfitTensors(path.string() + ": " + cause.what());
  }
}

void want(bool fits, const std::string& finding) {
  if (!fits) throw UnfitTensors(finding);
}

/// Collects findings for one error.
class Findings {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    if (++count_ <= kMostTold) text_ += (count_ == 1 ? "" : "; ") + c10::str(parts...);
  }
  void check(const fs::path& path) const {
    if (count_ == 0) return;
    const std::string more = count_ > kMostTold ? "; and " + std::to_string(count_ - kMostTold) + " more" : "";
    throw UnfitTensors(path.string() + ": " + text_ + more + "; give a model of the same architecture and sizes");
  }

 private:
  int count_ = 0;
  std::string text_;
};

/// The tensors of files by the names of the parameters that they are for.
class Given {
 public:
  Given(const TensorFiles& files, const LoadNames& names) : names_(names) {
    for (const auto& [name, place] : files.tensors())
      tensors_[names.parameter_of ? names.parameter_of(name) : name].push_back(name);
  }

  /// The tensor to read for a parameter, which may be given under any of the parameter's names; null: there is none.
  const std::string* find(const ParameterInfo& parameter, Findings& findings) {
    std::vector<std::string> names{parameter.name};
    names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
    const std::string* found = nullptr;
    for (const std::string& name : names) {
      known_.insert(name);
      const auto given = tensors_.find(name);
      if (given != tensors_.end() && found == nullptr) found = &choose(name, given->second, findings);
    }
    return found;
  }

  /// Finds the tensors for which find() was never asked.
  void find_unknown(Findings& findings) const {
    for (const auto& [parameter, tensors] : tensors_) {
      if (known_.count(parameter) != 0) continue;
      for (const std::string& tensor : tensors)
        if (!may_ignore(tensor))
          findings.add("the model has no parameter ", tensor == parameter ? "" : parameter + " ", "for tensor ",
                       tensor);
    }
  }

  /// Returns the name that a finding uses for the tensor of a parameter.
  static std::string label(const std::string& tensor, const std::string& parameter) {
    return tensor == parameter ? parameter : tensor + " (for " + parameter + ")";
  }

 private:
  bool may_ignore(const std::string& tensor) const { return names_.may_ignore && names_.may_ignore(tensor); }

  const std::string& choose(const std::string& parameter, const std::vector<std::string>& tensors,
                            Findings& findings) const {
    auto chosen = std::find(tensors.begin(), tensors.end(), parameter);
    if (chosen == tensors.end())
      chosen = std::find_if(tensors.begin(), tensors.end(), [this](const auto& name) { return !may_ignore(name); });
    if (chosen == tensors.end()) chosen = tensors.begin();
    for (const std::string& other : tensors)
      if (other != *chosen && !may_ignore(other))
        findings.add("tensors ", *chosen, " and ", other, " are both given for ", parameter);
    return *chosen;
  }

  const LoadNames& names_;
  std::map<std::string, std::vector<std::string>> tensors_;  // in the order of their names
  std::set<std::string> known_;
};

}  // namespace

TensorFiles::TensorFiles(const fs::path& path) : path_(path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    add(path);
  } else if (fs::exists(path / kModelFile, error)) {
    add(path / kModelFile);
  } else {
    want(fs::exists(path / kModelIndex, error),
         path.string() + " holds neither " + kModelFile + " nor " + kModelIndex +
             "; give a folder that save_pretrained() of transformers has written, with safetensors");
    check_index(path / kModelIndex);
  }
}

void TensorFiles::add(const fs::path& file) {
  auto reader = std::make_unique<SafetensorsReader>(file);
  for (const auto& [name, entry] : reader->entries()) {
    const bool fresh = tensors_.emplace(name, Place{reader.get(), entry}).second;
    want(fresh, path_.string() + ": tensor " + name + " lies in two files, one of them " + file.filename().string());
  }
  files_[file.filename().string()] = std::move(reader);
}

void TensorFiles::check_index(const fs::path& index) {
  const Json json = read_json(index);
  try {
    const auto& map = json.at("weight_map").as_object();
    std::set<std::string> names;
    for (const auto& [tensor, file] : map) names.insert(file.as_string());
    for (const std::string& name : names) {
      want(fs::path(name).filename() == name && name != "..",
           index.string() + ": file name \"" + name + "\" leaves the folder");
      add(index.parent_path() / name);
    }
    for (const auto& [tensor, file] : map) {
      want(files_.at(file.as_string())->contains(tensor),
           index.string() + ": tensor " + tensor + " is not in " + file.as_string());
    }
  } catch (const JsonError& cause) {
    throw UnfitTensors(index.string() + ": " + cause.what());
  }
}

std::vector<std::string> load_tensors(ShardedModel& model, const TensorFiles& files, const LoadNames& names) {
  Findings findings;
  Given given(files, names);
  std::map<std::string, std::string> tensor_of;  // by parameter
  std::vector<std::string> lacked;
  for (const auto& [unit, segment, parameter] : model.parameters()) {
    const std::string* tensor = given.find(parameter, findings);
    if (tensor == nullptr && names.may_lack && names.may_lack(parameter.name)) {
      lacked.push_back(parameter.name);
      continue;
    }
    if (tensor == nullptr) {
      findings.add(names.parameter_of ? "no tensor for " : "no tensor ", parameter.name, " ",
                   at::IntArrayRef(parameter.shape));
      continue;
    }
    tensor_of[parameter.name] = *tensor;
    const TensorEntry& entry = files.tensors().find(*tensor)->second.entry;
    if (entry.shape != parameter.shape) {
      findings.add(Given::label(*tensor, parameter.name), " is ", at::IntArrayRef(entry.shape), ", the model wants ",
                   at::IntArrayRef(parameter.shape));
    } else if (!is_format(entry.dtype)) {
      findings.add(Given::label(*tensor, parameter.name), " is ", entry.dtype, ", want float32, bfloat16 or float16");
    }
  }
  given.find_unknown(findings);
  findings.check(files.path());
  model.fill(
      [&](const ParameterInfo& parameter, std::int64_t begin, const at::Tensor& values) {
        const std::string& tensor = tensor_of.at(parameter.name);
        files.tensors().find(tensor)->second.file->read(tensor, begin, values);
      },
      [&](const ParameterInfo& parameter) { return tensor_of.count(parameter.name) != 0; });
  return lacked;
}

void load_tensors(ShardedModel& model, const TensorFiles& files,
                  const std::function<bool(const std::string& name)>& may_ignore) {
  load_tensors(model, files, LoadNames{.may_ignore = may_ignore});
}

}  // namespace fsdp
