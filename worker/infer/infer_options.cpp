#include "worker/infer/infer_options.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>

#include "base/arguments.h"
#include "base/numbers.h"
#include "base/usage_error.h"
#include "spec/infer_flags.h"

namespace infer {
namespace {

using base::UsageError;

[[noreturn]] void refuse(std::string_view what, std::string_view value, const std::string& want) {
  throw UsageError(std::string(what) + " " + std::string(value) + ": want " + want);
}

std::int64_t whole(std::string_view name, std::string_view value, std::int64_t low, std::int64_t high) {
  const auto number = base::whole_number<std::int64_t>(value);
  if (!number || *number < low || *number > high)
    refuse(name, value, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  return *number;
}

double real(std::string_view name, const std::string& value, double low, double high, const std::string& want) {
  char* end = nullptr;
  errno = 0;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || errno != 0 || !(number >= low && number <= high)) refuse(name, value, want);
  return number;
}

std::string word(std::string_view name, const std::string& value, std::initializer_list<std::string_view> words) {
  std::string list;
  for (const auto one : words) {
    if (one == value) return value;
    list += (list.empty() ? "" : ", ") + std::string(one);
  }
  refuse(name, value, "one of " + list);
}

std::string device(std::string_view name, const std::string& value) {
  const bool numbered = value.starts_with("cuda:") && base::whole_number<std::uint8_t>(value.substr(5));
  if (value != "cpu" && value != "cuda" && !numbered) refuse(name, value, "cpu, cuda or cuda:N");
  return value;
}

constexpr std::int64_t kMostTokens = 1 << 20, kMostTexts = 4096, kMostLabels = 1 << 20;

using Apply = void (*)(Options&, std::string_view name, const std::string& value);

/// The effect of each of kFlags.
const std::map<std::string_view, Apply>& effects() {
  static const std::map<std::string_view, Apply> all{
      {"--step", [](auto& o, auto name, auto& v) { o.step = whole(name, v, 0, INT64_MAX); }},
      {"--best", [](auto& o, auto, auto&) { o.best = true; }},
      {"--part", [](auto& o, auto, auto& v) { o.part = v; }},
      {"--run-file", [](auto& o, auto, auto& v) { o.run_file = v; }},
      {"--tokenizer", [](auto& o, auto, auto& v) { o.tokenizer = v; }},
      {"--dtype",
       [](auto& o, auto name, auto& v) {
         o.dtype = word(name, v, {"fp32", "bf16", "fp16"});
       }},
      {"--device", [](auto& o, auto name, auto& v) { o.device = device(name, v); }},
      {"--file", [](auto& o, auto, auto& v) { o.file = v; }},
      {"--whole", [](auto& o, auto, auto&) { o.whole = true; }},
      {"--batch", [](auto& o, auto name, auto& v) { o.batch = whole(name, v, 1, kMostTexts); }},
      {"--json", [](auto& o, auto, auto&) { o.json = true; }},
      {"--max-new-tokens", [](auto& o, auto name, auto& v) { o.max_new_tokens = whole(name, v, 1, kMostTokens); }},
      {"--temperature",
       [](auto& o, auto name, auto& v) { o.temperature = real(name, v, 0, 1000, "a number from 0 to 1000"); }},
      {"--top-p",
       [](auto& o, auto name, auto& v) { o.top_p = real(name, v, 1e-9, 1, "a number above 0 and at most 1"); }},
      {"--seed",
       [](auto& o, auto name, auto& v) { o.seed = static_cast<std::uint64_t>(whole(name, v, 0, INT64_MAX)); }},
      {"--pool",
       [](auto& o, auto name, auto& v) {
         o.pool = word(name, v, {"cls", "mean", "last"});
       }},
      {"--to", [](auto& o, auto, auto& v) { o.to = v; }},
      {"--top", [](auto& o, auto name, auto& v) { o.top = whole(name, v, 1, kMostLabels); }},
  };
  return all;
}

unsigned bit_of(Command command) {
  return 1U << static_cast<unsigned>(command);
}

base::Arguments read_line(std::span<const std::string> arguments, std::string_view command, Command which) {
  std::vector<base::Option> known;
  for (const auto& flag : spec::kInferFlags)
    known.push_back({flag.name, !flag.value.empty(), flag.name == "--file" ? "-f" : ""});
  auto line = base::read_arguments(arguments, known);
  for (const auto& [name, value] : line.options) {
    const auto flag = std::ranges::find(spec::kInferFlags, name, &spec::InferFlag::name);
    if ((flag->commands & bit_of(which)) == 0)
      throw UsageError(name + ": " + std::string(command) + " has no such option");
  }
  return line;
}

void check_together(const Options& out) {
  if (out.step && out.best) throw UsageError("--step and --best name two checkpoints; give one of them");
  if (!out.file.empty() && !out.texts.empty()) throw UsageError("there are texts and --file; give one of them");
  if (out.top_p < 1 && out.temperature == 0)
    throw UsageError("--top-p chooses among drawn tokens; give --temperature above 0, such as 1");
}

}  // namespace

Options parse_options(std::span<const std::string> arguments) {
  Options out;
  const std::string_view command = arguments.empty() ? "" : arguments[0];
  if (command == "--help" || command == "-h" || command == "help") {
    out.help = true;
    return out;
  }
  const std::map<std::string_view, Command> commands{
      {"generate", Command::kGenerate}, {"embed", Command::kEmbed}, {"classify", Command::kClassify}};
  const auto found = commands.find(command);
  if (found == commands.end())
    throw UsageError("argument \"" + std::string(command) + "\": want generate, embed or classify; see --help");
  out.command = found->second;
  const auto line = read_line(arguments.subspan(1), command, out.command);
  out.help = line.help;
  if (out.help) return out;
  for (const auto& [name, value] : line.options) effects().at(name)(out, name, value);
  if (line.words.empty()) throw UsageError(std::string(command) + " wants a MODEL: a folder; see --help");
  out.model = line.words.front();
  out.texts.assign(line.words.begin() + 1, line.words.end());
  check_together(out);
  return out;
}

std::string help_text() {
  std::string text =
      "muster-infer generate MODEL [TEXT...]   continue texts, or answer them\n"
      "muster-infer embed MODEL [TEXT...]      print a vector for each text; of DINOv2 for each image or folder of "
      "images\n"
      "muster-infer classify MODEL [TEXT...]   print the most likely labels of each text\n\n"
      "MODEL is a folder: a model of Hugging Face or an export, the checkpoints of a training, or one checkpoint of\n"
      "them. `muster generate` also takes the number of a job. Texts are arguments, lines of a file, or lines of\n"
      "standard input.\n";
  unsigned shown = 0;
  for (const auto& flag : spec::kInferFlags) {
    if (flag.commands != shown) {
      text += flag.commands == spec::kAllCommands ? "\nEvery command\n"
              : flag.commands == spec::kGenerates ? "\ngenerate\n"
              : flag.commands == spec::kEmbeds    ? "\nembed\n"
                                                  : "\nclassify\n";
      shown = flag.commands;
    }
    std::string usage = "  " + std::string(flag.name) + (flag.value.empty() ? "" : " " + std::string(flag.value));
    usage.resize(std::max<std::size_t>(22, usage.size() + 1), ' ');
    text += usage + std::string(flag.meaning) + "\n";
  }
  return text + "\nExit codes: 0 done; 2 the options, the model or a text is wrong; 1 anything else.\n";
}

}  // namespace infer
