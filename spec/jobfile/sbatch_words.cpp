#include "spec/jobfile/sbatch_words.h"

#include <algorithm>
#include <vector>

#include "base/numbers.h"
#include "base/words.h"
#include "spec/key_names.h"

namespace jobfile {
namespace {

constexpr std::int64_t kSecond = 1'000, kMinute = 60 * kSecond, kHour = 60 * kMinute, kDay = 24 * kHour;
constexpr std::int64_t kMebi = 1 << 20;
constexpr std::int64_t kMostNumber = 10'000'000;

/// Digits alone.
std::optional<std::int64_t> number_of(std::string_view text) {
  const auto number = base::whole_number<std::int64_t>(text);
  return number && text[0] != '-' && *number <= kMostNumber ? number : std::nullopt;
}

/// The numbers between colons; empty: something else is there, too.
std::vector<std::int64_t> numbers_of(std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (const auto& part : base::split(text, ':')) {
    const auto number = number_of(part);
    if (!number) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

bool is_memory(const Key& field) {
  return field.kind == Kind::kSize && field.name.starts_with("slurm.");
}

bool is_time_limit(const Key& field) {
  return field.name == "resources.time_limit";
}

/// A time as sbatch reads it, in milliseconds: "30" (minutes), "90:00" (minutes and seconds), "12:00:00", "2-12",
/// "2-12:30", "2-00:00:00".
struct SbatchTime {
  std::int64_t ms = 0;
  bool is_clear = false;  // nobody can take it for another time: it has days, or three numbers
};
std::optional<SbatchTime> sbatch_time(std::string_view text) {
  const auto dash = text.find('-');
  const auto days = dash == std::string_view::npos ? std::optional<std::int64_t>(0) : number_of(text.substr(0, dash));
  const bool has_days = dash != std::string_view::npos;
  const auto numbers = numbers_of(has_days ? text.substr(dash + 1) : text);
  if (!days || numbers.empty() || numbers.size() > 3) return std::nullopt;
  // With days the first number is hours. Without them one number is minutes, and the last of two or three is seconds.
  std::int64_t unit = has_days || numbers.size() == 3 ? kHour : kMinute;
  std::int64_t ms = *days * kDay;
  for (const auto number : numbers) {
    ms += number * unit;
    unit /= 60;
  }
  return SbatchTime{ms, has_days || numbers.size() == 3};
}

/// A size as sbatch reads it, in bytes: "120G", "48g", "400GB", "64000M". Its units are of 1024. nullopt: it is none,
/// or has no unit.
std::optional<std::int64_t> sbatch_size(std::string_view text) {
  const auto letters = text.find_first_not_of("0123456789");
  if (letters == std::string_view::npos) return std::nullopt;
  const auto number = number_of(text.substr(0, letters));
  auto unit = text.substr(letters);
  if (unit.size() == 2 && (unit[1] == 'B' || unit[1] == 'b')) unit.remove_suffix(1);
  constexpr std::string_view kUnits = "KMGT";
  if (!number || unit.size() != 1) return std::nullopt;
  const char letter = unit[0] >= 'a' ? static_cast<char>(unit[0] - 'a' + 'A') : unit[0];
  const auto power = kUnits.find(letter);
  if (power == std::string_view::npos) return std::nullopt;
  return *number << (10 * (power + 1));
}

}  // namespace

std::optional<Value> sbatch_value(const Key& field, std::string_view text) {
  if (is_memory(field)) {
    if (const auto bytes = sbatch_size(text)) return *bytes;
  } else if (is_time_limit(field)) {
    if (const auto time = sbatch_time(text); time && time->is_clear) return time->ms;
  }
  return std::nullopt;
}

std::string sbatch_remedy(const Key& field, std::string_view text) {
  const auto number = number_of(text);
  if (is_memory(field) && number) {
    if (*number == 0) return "; for all memory of a node leave it out, and set slurm.exclusive = true";
    return "; sbatch reads MiB: write \"" + std::to_string(*number) + "MiB\"";
  }
  if (!is_time_limit(field)) return {};
  if (const auto time = sbatch_time(text)) {
    return "; sbatch reads minutes" + std::string(number ? "" : " and seconds") + ": write \"" +
           base::print_duration_ms(time->ms) + "\"";
  }
  const bool no_limit = text == "UNLIMITED" || text == "unlimited" || text == "INFINITE" || text == "infinite";
  return no_limit ? "; leave it out for no limit" : "";
}

std::string_view key_of_sbatch(std::string_view path) {
  constexpr std::string_view kTable = "slurm.";
  if (!path.starts_with(kTable)) return {};
  std::string name(path.substr(kTable.size()));
  std::ranges::replace(name, '_', '-');
  // [slurm] has keys of its own by most of sbatch's names.
  for (const auto& key : job_keys()) {
    if (key.sbatch == name && !key.name.starts_with(kTable)) return key.name;
  }
  return {};
}

std::map<std::string, std::optional<std::string>> sbatch_options(const muster::v1::JobSpec& spec) {
  std::map<std::string, std::optional<std::string>> options;
  for (const auto& key : job_keys()) {
    const bool is_of_rank = key.name == spec::key::kCpusOfRank || key.name == spec::key::kGpusOfRank;
    if (key.sbatch.empty() || !(is_of_rank || key.name.starts_with("slurm."))) continue;
    const auto value = get(spec, key);
    if (!value || *value == Value(false) || *value == Value(std::string())) continue;
    auto& option = options[std::string(key.sbatch)];
    if (key.kind == Kind::kSize) {
      option = std::to_string((std::get<std::int64_t>(*value) + kMebi - 1) / kMebi) + "M";
    } else if (key.kind != Kind::kFlag) {
      option = print(key, *value);
    }
  }
  for (const auto& [name, value] : sorted(spec.slurm().options())) {
    options[name] = value.empty() ? std::nullopt : std::optional(value);
  }
  return options;
}

std::string as_duration(std::string_view text) {
  const auto time = sbatch_time(text);
  return time ? base::print_duration_ms(time->ms) : std::string(text);
}

}  // namespace jobfile
