#include "worker/recipes/ask_moves.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "base/usage_error.h"
#include "data/chess/notation.h"
#include "worker/batch/pairs.h"
#include "worker/metrics/legal_moves.h"

#ifdef MUSTER_WITH_TOKENS
#include <stdexcept>

#include "data/tokenizers/tokenizer.h"
#else
#include "base/words.h"
#endif

namespace worker {

#ifdef MUSTER_WITH_TOKENS

DecodeText decode_text_of(const std::string& path) {
  try {
    return [tokenizer = data::tokenizers::open_tokenizer(path)](const std::vector<std::int64_t>& ids) {
      const data::tokenizers::Tokenizer::Ids pieces(ids.begin(), ids.end());
      return tokenizer->decode(pieces, /*skip_special=*/true);
    };
  } catch (const std::runtime_error& error) {
    throw base::UsageError(error.what());
  }
}

#else

DecodeText decode_text_of(const std::string& path) {
  if (path != "bytes") {
    throw base::UsageError("tokenizer " + path +
                           ": this build reads the byte vocabulary alone; prepare the data with --tokenizer bytes, or "
                           "configure the build with MUSTER_WITH_CONTROLLER=ON");
  }
  return [](const std::vector<std::int64_t>& ids) {
    std::string text;
    for (const auto id : ids) {
      if (id >= 0 && id < 256) text += static_cast<char>(id);  // 256 ends a text
    }
    return base::valid_utf8(text);
  };
}

#endif

namespace {

constexpr std::int64_t kPlies = 20;
/// A number, a space, a move of at most 7 characters, and the space after it.
constexpr std::int64_t kMoveTokens = 16;
constexpr std::size_t kAtOnce = 32;

/// The beginning of a game that ends where its next move begins.
std::string beginning_of(std::string_view game, std::int64_t record) {
  for (auto ply = static_cast<std::size_t>(1 + record % kPlies); ply > 0; --ply) {
    if (const auto before = data::chess::text_before(game, ply)) return std::string(*before);
  }
  return {};
}

TokenIds wide(std::span<const std::uint32_t> ids) {
  return {ids.begin(), ids.end()};
}

TokenIds joined(TokenIds ids, const TokenIds& more) {
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

/// The most tokens whose text is not longer than the beginning.
std::int64_t tokens_of(const std::string& beginning, std::span<const std::uint32_t> ids, const DecodeText& text_of) {
  std::size_t low = 0, high = ids.size();
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    if (text_of(wide(ids.first(middle))).size() <= beginning.size()) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<std::int64_t>(low);
}

/// True if the first move is whole: a word that is no number of a move, and a space after it.
bool has_move(std::string_view text) {
  for (std::size_t begin = text.find_first_not_of(" \n"); begin != std::string_view::npos;) {
    const std::size_t end = text.find_first_of(" \n", begin);
    if (end == std::string_view::npos) return false;
    if (text[end - 1] != '.') return true;
    begin = text.find_first_not_of(" \n", end);
  }
  return false;
}

}  // namespace

void ask_for_moves(Evaluation& evaluation, CausalModel& model, const data::format::Dataset& games,
                   const DecodeText& text_of, const MoveQuestions& questions) {
  fsdp::DeviceMesh& mesh = evaluation.mesh();
  PromptOptions options;
  options.samples = questions.samples;
  options.most = questions.sequence_length - kMoveTokens;
  options.cut = [&](std::int64_t record, std::span<const std::uint32_t> ids) {
    return tokens_of(beginning_of(text_of(wide(ids)), record), ids, text_of);
  };
  const auto prompts = prompts_of(games, mesh.rank(), mesh.world_size(), options);
  const auto notation =
      questions.notation == spec::LegalMoves::kUci ? data::chess::Notation::kUci : data::chess::Notation::kSan;
  const AllDone all_done = [&](bool mine) { return mesh.control().all_reduce(mine ? 0.0 : 1.0) == 0; };
  Sampling sampling;
  sampling.max_new_tokens = kMoveTokens;
  LegalShare share;
  for (std::size_t first = 0; first < prompts.size(); first += kAtOnce) {
    const std::size_t end = std::min(first + kAtOnce, prompts.size());
    std::vector<TokenIds> inputs;
    for (std::size_t i = first; i < end; ++i) inputs.push_back(prompts[i].ids);
    std::vector<TokenIds> said(inputs.size());
    const auto answers =
        generate(model, inputs, sampling, questions.activations, all_done, [&](std::size_t row, std::int64_t token) {
          said[row].push_back(token);
          return !has_move(text_of(said[row]));
        });
    for (std::size_t i = first; i < end; ++i) {
      if (!prompts[i].counts) continue;
      const std::string beginning = beginning_of(text_of(joined(prompts[i].ids, prompts[i].rest)), prompts[i].record);
      // A token may reach over the end of the beginning, so the prompt may lack the last characters of it.
      const std::string all = text_of(joined(prompts[i].ids, answers[i - first]));
      const std::string reply = all.starts_with(beginning) ? all.substr(beginning.size()) : "";
      share += count_legal_moves(beginning, reply, notation);
    }
  }
  evaluation.add("validation/legal_moves", static_cast<double>(share.legal), static_cast<double>(share.asked));
}

}  // namespace worker
