#include "slurm/option_words.h"

#include <algorithm>
#include <array>

namespace slurm {
namespace {

/// An option may take a value. kMaybe: only behind "=".
enum class Takes { kNothing, kMaybe, kValue };
/// The program that knows an option.
enum class Of { kBoth, kSbatch, kSrun };

struct Known {
  std::string_view name;
  char letter = 0;
  Takes takes = Takes::kValue;
  Of of = Of::kBoth;
};

constexpr auto kKnown = std::to_array<Known>({
    {"account", 'A'},
    {"acctg-freq"},
    {"array", 'a', Takes::kValue, Of::kSbatch},
    {"batch", 0, Takes::kValue, Of::kSbatch},
    {"bb"},
    {"bbf"},
    {"begin", 'b'},
    {"chdir", 'D'},
    {"cluster-constraint"},
    {"clusters", 'M'},
    {"comment"},
    {"compress", 0, Takes::kMaybe, Of::kSrun},
    {"constraint", 'C'},
    {"container"},
    {"contiguous", 0, Takes::kNothing},
    {"core-spec", 'S'},
    {"cores-per-socket"},
    {"cpu-bind"},
    {"cpu-freq"},
    {"cpus-per-gpu"},
    {"cpus-per-task", 'c'},
    {"deadline"},
    {"delay-boot"},
    {"dependency", 'd'},
    {"distribution", 'm'},
    {"epilog", 0, Takes::kValue, Of::kSrun},
    {"error", 'e'},
    {"exact", 0, Takes::kNothing, Of::kSrun},
    {"exclude", 'x'},
    {"exclusive", 0, Takes::kMaybe},
    {"export"},
    {"export-file", 0, Takes::kValue, Of::kSbatch},
    {"extra-node-info", 'B'},
    {"get-user-env", 0, Takes::kMaybe, Of::kSbatch},
    {"gid"},
    {"gpu-bind"},
    {"gpu-freq"},
    {"gpus", 'G'},
    {"gpus-per-node"},
    {"gpus-per-socket"},
    {"gpus-per-task"},
    {"gres"},
    {"gres-flags"},
    {"help", 'h', Takes::kNothing},
    {"het-group", 0, Takes::kValue, Of::kSrun},
    {"hint"},
    {"hold", 'H', Takes::kNothing},
    {"ignore-pbs", 0, Takes::kNothing, Of::kSbatch},
    {"immediate", 'I', Takes::kMaybe, Of::kSrun},
    {"input", 'i'},
    {"interactive", 0, Takes::kNothing, Of::kSrun},
    {"job-name", 'J'},
    {"jobid", 0, Takes::kValue, Of::kSrun},
    {"kill-on-bad-exit", 'K', Takes::kMaybe, Of::kSrun},
    {"kill-on-invalid-dep", 0, Takes::kValue, Of::kSbatch},
    {"label", 'l', Takes::kNothing, Of::kSrun},
    {"licenses", 'L'},
    {"mail-type"},
    {"mail-user"},
    {"mcs-label"},
    {"mem"},
    {"mem-bind"},
    {"mem-per-cpu"},
    {"mem-per-gpu"},
    {"mincpus"},
    {"mpi", 0, Takes::kValue, Of::kSrun},
    {"msg-timeout", 0, Takes::kValue, Of::kSrun},
    {"multi-prog", 0, Takes::kNothing, Of::kSrun},
    {"network"},
    {"nice", 0, Takes::kMaybe},
    {"no-allocate", 'Z', Takes::kNothing, Of::kSrun},
    {"no-kill", 'k', Takes::kMaybe},
    {"no-requeue", 0, Takes::kNothing, Of::kSbatch},
    {"nodefile", 'F'},
    {"nodelist", 'w'},
    {"nodes", 'N'},
    {"ntasks", 'n'},
    {"ntasks-per-core"},
    {"ntasks-per-gpu"},
    {"ntasks-per-node"},
    {"ntasks-per-socket"},
    {"open-mode"},
    {"output", 'o'},
    {"overcommit", 'O', Takes::kNothing},
    {"overlap", 0, Takes::kNothing, Of::kSrun},
    {"oversubscribe", 's', Takes::kNothing},
    {"parsable", 0, Takes::kNothing, Of::kSbatch},
    {"partition", 'p'},
    {"power"},
    {"prefer"},
    {"preserve-env", 'E', Takes::kNothing, Of::kSrun},
    {"priority"},
    {"profile"},
    {"prolog", 0, Takes::kValue, Of::kSrun},
    {"propagate", 0, Takes::kMaybe},
    {"pty", 0, Takes::kMaybe, Of::kSrun},
    {"qos", 'q'},
    {"quiet", 'Q', Takes::kNothing},
    {"reboot", 0, Takes::kNothing},
    {"relative", 'r', Takes::kValue, Of::kSrun},
    {"requeue", 0, Takes::kNothing, Of::kSbatch},
    {"reservation"},
    {"signal"},
    {"slurmd-debug", 0, Takes::kValue, Of::kSrun},
    {"sockets-per-node"},
    {"spread-job", 0, Takes::kNothing},
    {"switches"},
    {"task-epilog", 0, Takes::kValue, Of::kSrun},
    {"task-prolog", 0, Takes::kValue, Of::kSrun},
    {"test-only", 0, Takes::kNothing},
    {"thread-spec"},
    {"threads", 'T', Takes::kValue, Of::kSrun},
    {"threads-per-core"},
    {"time", 't'},
    {"time-min"},
    {"tmp"},
    {"uid"},
    {"unbuffered", 'u', Takes::kNothing, Of::kSrun},
    {"usage", 'u', Takes::kNothing, Of::kSbatch},
    {"use-min-nodes", 0, Takes::kNothing},
    {"verbose", 'v', Takes::kNothing},
    {"version", 'V', Takes::kNothing},
    {"wait", 'W', Takes::kNothing, Of::kSbatch},
    {"wait", 'W', Takes::kValue, Of::kSrun},
    {"wait-all-nodes"},
    {"wckey"},
    {"whole", 0, Takes::kNothing, Of::kSrun},
    {"wrap", 0, Takes::kValue, Of::kSbatch},
});

class WordReader {
 public:
  WordReader(const std::vector<std::string>& words, Reader reader) : words_(words), reader_(reader) {}

  OptionWords read() {
    for (; at_ < words_.size(); ++at_) {
      const auto& word = words_[at_];
      if (word == "--") {
        ++at_;
        break;
      }
      if (word.size() < 2 || word[0] != '-') {
        if (reader_ == Reader::kSrun) break;
        out_.others.push_back(word);
      } else if (word[1] == '-') {
        read_long(word);
      } else {
        read_letters(word);
      }
    }
    for (; at_ < words_.size(); ++at_) out_.others.push_back(words_[at_]);
    return std::move(out_);
  }

 private:
  bool knows(const Known& one) const {
    return one.of == Of::kBoth || (one.of == Of::kSbatch) == (reader_ == Reader::kSbatch);
  }

  /// The option of this name, or the only one that begins so. Null: there is none, or there are several.
  const Known* find(std::string_view name) const {
    const Known* found = nullptr;
    for (const auto& one : kKnown) {
      if (!knows(one) || !one.name.starts_with(name)) continue;
      if (one.name == name) return &one;
      if (found != nullptr) return nullptr;
      found = &one;
    }
    return found;
  }

  void read_long(const std::string& word) {
    const auto equals = word.find('=');
    const auto written = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const auto* known = find(written);
    WrittenOption option{known == nullptr ? written : std::string(known->name), std::nullopt, word};
    if (equals != std::string::npos) {
      option.value = word.substr(equals + 1);
      if (known != nullptr && known->takes == Takes::kNothing) {
        out_.problems.push_back(word + ": want no value");
        return;
      }
    } else if (known != nullptr ? known->takes == Takes::kValue : reader_ == Reader::kSbatch && next_is_a_value()) {
      if (!take_next(option)) return;
    }
    out_.options.push_back(std::move(option));
  }

  void read_letters(const std::string& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      const auto known =
          std::ranges::find_if(kKnown, [&](const Known& one) { return knows(one) && one.letter == word[i]; });
      if (known == kKnown.end()) {
        out_.problems.push_back(word + ": there is no option -" + std::string(1, word[i]));
        return;
      }
      WrittenOption option{std::string(known->name), std::nullopt, word};
      const auto rest = word.substr(i + 1);
      if (known->takes != Takes::kNothing && !rest.empty()) {
        option.value = rest;
        i = word.size();
      } else if (known->takes == Takes::kValue && !take_next(option)) {
        return;
      }
      out_.options.push_back(std::move(option));
    }
  }

  bool next_is_a_value() const { return at_ + 1 < words_.size() && !words_[at_ + 1].starts_with("-"); }

  /// False: there is no word left.
  bool take_next(WrittenOption& option) {
    if (at_ + 1 == words_.size()) {
      out_.problems.push_back(option.typed + ": want a value");
      return false;
    }
    option.value = words_[++at_];
    option.typed += " " + *option.value;
    return true;
  }

  const std::vector<std::string>& words_;
  const Reader reader_;
  std::size_t at_ = 0;
  OptionWords out_;
};

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

}  // namespace

OptionWords read_option_words(const std::vector<std::string>& words, Reader reader) {
  return WordReader(words, reader).read();
}

LineWords words_of_line(std::string_view line) {
  LineWords out;
  std::string word;
  bool begun = false, escaped = false;
  char quote = 0;
  const auto end_word = [&] {
    if (begun) out.words.push_back(std::move(word));
    word.clear();
    begun = false;
  };
  for (const char c : line) {
    if (escaped && (quote != 0 || !is_space(c))) {
      word += c;
      begun = true;
      escaped = false;
    } else if (c == '\\') {
      escaped = true;
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote != 0) {
      word += c;
    } else if (c == '"' || c == '\'') {
      quote = c;
      begun = true;
    } else if (is_space(c)) {
      escaped = false;
      end_word();
    } else if (c == '#') {
      break;
    } else {
      word += c;
      begun = true;
    }
  }
  end_word();
  if (quote != 0) out.problem = std::string("the quote ") + quote + " does not end on its line; close it there";
  return out;
}

}  // namespace slurm
