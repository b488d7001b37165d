#include "fsdp/files/checkpoint_manifest.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/checksum.h"
#include "base/numbers.h"
#include "fsdp/tracing/error_text.h"

namespace fsdp {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kBefore = R"({"crc32c": ")", kAfter = R"(",)";
constexpr std::size_t kDigits = 8;
constexpr std::size_t kHead = kBefore.size() + kDigits + kAfter.size();

std::string digits_of(std::string_view summed) {
  std::array<char, kDigits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", base::crc32c(summed));
  return digits.data();
}

/// True if the text begins as summed_text() makes it. Throws CheckpointError naming the file `name` when the text
/// begins so and its checksum is another one.
bool has_own_sum(std::string_view text, const std::string& name) {
  if (text.size() < kHead || !text.starts_with(kBefore) || text.substr(kHead - kAfter.size(), kAfter.size()) != kAfter)
    return false;
  if (text.substr(kBefore.size(), kDigits) != digits_of(text.substr(kHead)))
    fail(name + " is corrupt: its checksum is not that of its text");
  return true;
}

constexpr const char* kFormat = "muster-checkpoint";
constexpr std::int64_t kFirstVersion = 1, kFirstOfParts = 2, kFirstOfBlocks = 3, kFirstOfSums = 4, kVersion = 4;
constexpr std::int64_t kMaxManifestBytes = 256 << 20;
constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int64_t kMostBlockBytes = std::int64_t{1} << 40;

/// Throws CheckpointError when there is no such file, or it is larger than any manifest.
std::string read_manifest(const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) fail("no " + path.filename().string());
  if (static_cast<std::int64_t>(bytes) > kMaxManifestBytes)
    fail(path.filename().string() + " is larger than any manifest");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) fail("cannot read " + path.filename().string());
  return text.str();
}

std::string padded(const char* format, std::int64_t a, std::int64_t b = 0) {
  char text[96];
  std::snprintf(text, sizeof text, format, static_cast<long long>(a), static_cast<long long>(b));
  return text;
}

std::uint32_t parse_sum(const Json& json) {
  const std::int64_t sum = json.as_int();
  if (sum < 0 || sum > std::numeric_limits<std::uint32_t>::max()) fail("manifest: a checksum of " + json.dump());
  return static_cast<std::uint32_t>(sum);
}

/// `default_steps` is the optimizer's step count. A manifest without step counts per tensor used it for all tensors.
SavedTensor parse_tensor(const Json& json, int world_size, std::int64_t default_steps) {
  SavedTensor tensor;
  std::int64_t numel = 1;
  for (const Json& dim : json.at("shape").as_array()) {
    tensor.shape.push_back(dim.as_int());
    if (tensor.shape.back() < 0 || __builtin_mul_overflow(numel, tensor.shape.back(), &numel))
      fail("manifest: impossible shape");
  }
  tensor.trainable = json.at("trainable").as_bool();
  const Json* steps = json.find("steps");
  if (tensor.trainable) tensor.steps = steps != nullptr ? steps->as_int() : default_steps;
  if (tensor.steps < 0) fail("manifest: " + std::to_string(tensor.steps) + " optimizer steps of a tensor");
  std::int64_t covered = 0;
  for (const Json& slice : json.at("slices").as_array()) {
    const Json::Array& numbers = slice.as_array();
    if (numbers.size() != 3) fail("manifest: a slice wants rank, begin and length");
    const std::int64_t rank = numbers[0].as_int();
    if (rank < 0 || rank >= world_size) fail("manifest: a slice of rank " + std::to_string(rank));
    const SavedSlice saved{static_cast<int>(rank), numbers[1].as_int(), numbers[2].as_int()};
    if (saved.begin != covered || saved.length <= 0 || saved.length > numel - covered)
      fail("manifest: slices of a tensor have holes or overlap");
    covered += saved.length;
    tensor.slices.push_back(saved);
  }
  if (covered != numel) fail("manifest: slices of a tensor do not cover it");
  return tensor;
}

SavedOptimizer parse_optimizer(const Json& json) {
  SavedOptimizer optimizer;
  optimizer.name = json.at("name").as_string();
  optimizer.steps = json.at("steps").as_int();
  if (optimizer.steps < 0) fail("manifest: " + std::to_string(optimizer.steps) + " optimizer steps");
  if (const Json* states = json.find("states")) {
    for (const Json& state : states->as_array()) optimizer.states.push_back(state.as_string());
  } else {
    optimizer.states = {"exp_avg", "exp_avg_sq"};  // version 1
  }
  return optimizer;
}

/// `json` has members "optimizer", if the part has one, and "tensors".
SavedPart parse_part(const Json& json, int world_size) {
  SavedPart part;
  if (const Json* optimizer = json.find("optimizer")) part.optimizer = parse_optimizer(*optimizer);
  const std::int64_t steps = part.optimizer ? part.optimizer->steps : 0;
  for (const auto& [name, tensor] : json.at("tensors").as_object())
    part.tensors[name] = parse_tensor(tensor, world_size, steps);
  if (const Json* left_out = json.find("left_out")) part.left_out = left_out->as_int();
  if (part.left_out < 0) fail("manifest: " + std::to_string(part.left_out) + " parameters left out");
  return part;
}

Json json_of(const ParameterInfo& parameter, const Segment& segment) {
  Json tensor;
  tensor["shape"] = Json::Array(parameter.shape.begin(), parameter.shape.end());
  Json slices = Json::Array();
  for (int rank = 0; rank < segment.layout().world_size(); ++rank) {
    const Slice slice = segment.layout().slice(parameter, rank);
    if (slice.length > 0) slices.push_back(Json::Array{rank, slice.begin, slice.length});
  }
  tensor["slices"] = std::move(slices);
  return tensor;
}

Json json_of(const CheckpointPart& part) {
  Json json;
  Optimizer::StepCounts counts;
  if (part.optimizer != nullptr) {
    const auto states = part.optimizer->state_names();
    json["optimizer"] = Json::Object{{"name", part.optimizer->name()},
                                     {"steps", part.optimizer->steps()},
                                     {"states", Json::Array(states.begin(), states.end())}};
    counts = part.optimizer->parameter_steps();
  }
  Json tensors = Json::Object();
  std::int64_t left_out = 0;
  for (const auto& [unit, segment, parameter] : part.model.parameters()) {
    if (!part.saves(parameter)) {
      ++left_out;
      continue;
    }
    const bool has_states = part.optimizer != nullptr && segment.key().has_master;
    Json tensor = json_of(parameter, segment);
    tensor["unit"] = part.model.units()[unit]->name();
    tensor["trainable"] = has_states;
    if (has_states) tensor["steps"] = counts[unit][parameter.index];
    tensors[parameter.name] = std::move(tensor);
  }
  json["tensors"] = std::move(tensors);
  if (left_out > 0) json["left_out"] = left_out;
  return json;
}

/// A text whose checksum is right says the version that it was saved with. Only then a version that is too high means a
/// later program, and not damage. Texts of versions 1 to 3 have no checksum, and neither may those of a far later one.
void check_version(const fs::path& path, std::int64_t version, bool summed) {
  if (version > kVersion)
    throw CheckpointTooNew(path.string() + " has format version " + std::to_string(version) +
                           ", and this program reads versions " + std::to_string(kFirstVersion) + " to " +
                           std::to_string(kVersion) +
                           ": a later program has saved it; run that program again, or move the folder away to go on "
                           "from the checkpoint before it");
  if (version < kFirstVersion) fail("manifest is of format version " + std::to_string(version));
  if (version >= kFirstOfSums && !summed)
    fail(std::string(kManifest) + " is corrupt: it does not begin with the checksum of its text");
}

}  // namespace

std::string step_name(std::int64_t step) {
  return padded("step-%08lld", step);
}

std::string file_name(int rank, int world_size) {
  return padded("rank-%05lld-of-%05lld.safetensors", rank, world_size);
}

std::optional<std::int64_t> number_after(std::string_view text, std::string_view mark) {
  const auto at = text.rfind(mark);
  if (at == std::string_view::npos) return {};
  const auto number = base::whole_number<std::int64_t>(text.substr(at + mark.size()));
  return number && *number >= 0 ? number : std::nullopt;
}

void fail(const std::string& text) {
  throw CheckpointError(text);
}

std::string summed_text(const Json& value) {
  TORCH_CHECK(value.size() > 0 && !value.contains(kOwnSum),
              "a text with a checksum of its own wants an object without ", kOwnSum);
  const std::string rest = value.dump(1).substr(1) + "\n";
  return std::string(kBefore) + digits_of(rest) + std::string(kAfter) + rest;
}

std::map<std::string, SavedPart> parse_parts(const Json& manifest) {
  const int world_size = static_cast<int>(manifest.at("world_size").as_int());
  std::map<std::string, SavedPart> parts;
  if (manifest.at("version").as_int() < kFirstOfParts) {
    manifest.at("optimizer");
    parts["model"] = parse_part(manifest, world_size);
    return parts;
  }
  for (const auto& [name, json] : manifest.at("parts").as_object()) {
    SavedPart part = parse_part(json, world_size);
    part.prefix = name + "/";
    parts[name] = std::move(part);
  }
  return parts;
}

Json json_of(const std::string& name, const WrittenFile& written) {
  const Json header = Json::Object{{"bytes", written.header_bytes}, {"crc32c", std::int64_t{written.header_checksum}}};
  Json file =
      Json::Object{{"name", name}, {"bytes", written.bytes}, {"header", header}, {"block_bytes", written.block_bytes}};
  file["blocks"] = Json::Array();
  for (const std::uint32_t sum : written.blocks) file["blocks"].push_back(std::int64_t{sum});
  return file;
}

SavedSums parse_sums(const Json& manifest, int rank) {
  const Json& file = manifest.at("files").as_array().at(static_cast<std::size_t>(rank));
  SavedSums sums;
  sums.bytes = file.at("bytes").as_int();
  if (sums.bytes < 0) fail("manifest: a file of " + std::to_string(sums.bytes) + " bytes");
  if (manifest.at("version").as_int() < kFirstOfBlocks) {
    sums.whole = parse_sum(file.at("crc32c"));
    return sums;
  }
  sums.header_bytes = file.at("header").at("bytes").as_int();
  sums.header = parse_sum(file.at("header").at("crc32c"));
  sums.block_bytes = file.at("block_bytes").as_int();
  if (sums.block_bytes < 1 || sums.block_bytes > kMostBlockBytes)
    fail("manifest: blocks of " + std::to_string(sums.block_bytes) + " bytes");
  const Json::Array& blocks = file.at("blocks").as_array();
  const std::int64_t want = sums.bytes / sums.block_bytes + (sums.bytes % sums.block_bytes != 0 ? 1 : 0);
  if (static_cast<std::int64_t>(blocks.size()) != want)
    fail("manifest: " + std::to_string(blocks.size()) + " checksums for " + std::to_string(want) + " blocks");
  for (const Json& sum : blocks) sums.blocks.push_back(parse_sum(sum));
  return sums;
}

Json make_manifest(const std::vector<CheckpointPart>& parts, const CheckpointState& state, std::int64_t attempt) {
  Json manifest = Json::Object{{"format", kFormat},  {"version", kVersion},
                               {"step", state.step}, {"world_size", parts.front().model.mesh().shard().world_size()},
                               {"attempt", attempt}, {"extra", state.extra}};
  for (const CheckpointPart& part : parts) manifest["parts"][part.name] = json_of(part);
  return manifest;
}

CheckpointInfo inspect(const fs::path& path, std::int64_t step) {
  CheckpointInfo info;
  info.path = path;
  info.step = step;
  const std::string text = read_manifest(path / kManifest);
  const bool summed = has_own_sum(text, kManifest);
  info.manifest = Json::parse(text);
  if (summed) info.manifest.as_object().erase(kOwnSum);
  const Json& manifest = info.manifest;
  if (manifest.at("format").as_string() != kFormat) fail("manifest is of another format");
  check_version(path, manifest.at("version").as_int(), summed);
  if (manifest.at("step").as_int() != step) fail("manifest is of step " + manifest.at("step").dump());
  const std::int64_t ranks = manifest.at("world_size").as_int();
  if (ranks < 1 || ranks > kMostRanks) fail("manifest is of " + std::to_string(ranks) + " ranks");
  info.world_size = static_cast<int>(ranks);
  info.attempt = manifest.at("attempt").as_int();
  const Json::Array& files = manifest.at("files").as_array();
  if (files.size() != static_cast<std::size_t>(info.world_size))
    fail("manifest lists " + std::to_string(files.size()) + " files for " + std::to_string(info.world_size) + " ranks");
  for (int rank = 0; rank < info.world_size; ++rank) {
    const std::string name = file_name(rank, info.world_size);
    if (files[rank].at("name").as_string() != name) fail("manifest lists another file for " + name);
    std::error_code error;
    const auto bytes = fs::file_size(path / name, error);
    if (error) fail("no " + name);
    const std::int64_t want = files[rank].at("bytes").as_int();
    if (static_cast<std::int64_t>(bytes) != want)
      fail(name + " has " + std::to_string(bytes) + " bytes, the manifest says " + std::to_string(want));
    parse_sums(manifest, rank);
    info.bytes += want;
  }
  // A load reads these members later. Checking them here makes a manifest without them count as torn.
  parse_parts(manifest);
  manifest.at("extra");
  return info;
}

CheckpointList list_checkpoints(const fs::path& folder) {
  CheckpointList list;
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto step = number_after(name, kStepPrefix);
    if (step && name == step_name(*step)) found.emplace_back(*step, entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    fail("cannot list the checkpoints in " + folder.string() + ": " + error.message());
  std::sort(found.rbegin(), found.rend());
  for (const auto& [step, path] : found) {
    const std::string problem = failure_of([&, step = step, &path = path] {
      try {
        list.valid.push_back(inspect(path, step));
      } catch (const CheckpointTooNew& newer) {
        list.too_new.push_back({step, newer.what()});
      }
    });
    if (!problem.empty()) list.ignored.push_back(path.filename().string() + ": " + problem);
  }
  return list;
}

void CheckpointList::refuse_newer_than(std::int64_t step) const {
  if (!too_new.empty() && too_new.front().step > step) throw CheckpointTooNew(too_new.front().problem);
}

std::optional<CheckpointInfo> latest_valid(const fs::path& folder) {
  CheckpointList list = list_checkpoints(folder);
  list.refuse_newer_than(list.valid.empty() ? -1 : list.valid.front().step);
  if (list.valid.empty()) return {};
  return std::move(list.valid.front());
}

}  // namespace fsdp
