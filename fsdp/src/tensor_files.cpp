#include "fsdp/tensor_files.h"

#include <c10/util/Exception.h>

#include <fstream>
#include <set>
#include <sstream>

#include "fsdp/json.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostIndexBytes = 256 << 20;
constexpr int kMostTold = 5;  // findings in one error

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

bool can_convert(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

/// The tensor of a parameter, under any of its names.
const TensorFiles::Place* place_of(const TensorFiles& files, const ParameterInfo& parameter, std::string& name) {
  std::vector<std::string> names{parameter.name};
  names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
  for (const std::string& one : names) {
    const auto found = files.tensors().find(one);
    if (found == files.tensors().end()) continue;
    name = one;
    return &found->second;
  }
  return nullptr;
}

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

void load_tensors(ShardedModel& model, const TensorFiles& files,
                  const std::function<bool(const std::string& name)>& may_ignore) {
  Findings findings;
  std::set<std::string> known;
  std::map<std::string, std::string> names;  // in the files, by parameter
  for (const auto& unit : model.units()) {
    for (const auto& segment : unit->segments()) {
      for (const ParameterInfo& parameter : segment->layout().parameters()) {
        known.insert(parameter.name);
        known.insert(parameter.aliases.begin(), parameter.aliases.end());
        const TensorFiles::Place* place = place_of(files, parameter, names[parameter.name]);
        if (place == nullptr) {
          findings.add("no tensor ", parameter.name, " ", at::IntArrayRef(parameter.shape));
        } else if (place->entry.shape != parameter.shape) {
          findings.add(parameter.name, " is ", at::IntArrayRef(place->entry.shape), ", the model wants ",
                       at::IntArrayRef(parameter.shape));
        } else if (!can_convert(place->entry.dtype)) {
          findings.add(parameter.name, " is ", place->entry.dtype, ", want float32, bfloat16 or float16");
        }
      }
    }
  }
  for (const auto& [name, place] : files.tensors())
    if (known.count(name) == 0 && !(may_ignore && may_ignore(name)))
      findings.add("the model has no parameter for tensor ", name);
  findings.check(files.path());
  model.fill([&](const ParameterInfo& parameter, std::int64_t begin, const at::Tensor& values) {
    const std::string& name = names.at(parameter.name);
    files.tensors().find(name)->second.file->read(name, begin, values);
  });
}

}  // namespace fsdp
