#include "data/prepare/records.h"

#include "data/prepare/text/man_pages.h"
#include "data/prepare/text/packages.h"

namespace data::prepare {
namespace {

constexpr std::size_t kBatchBytes = 1 << 20;  // of text that is encoded at once
constexpr std::size_t kBatchTexts = 1024;

format::Kind kind_of(RecordKind kind) {
  switch (kind) {
    case RecordKind::kPair:
      return format::Kind::kPairs;
    case RecordKind::kLabelled:
      return format::Kind::kLabelled;
    default:
      return format::Kind::kTokens;
  }
}

std::vector<std::string> fields_of(RecordKind kind) {
  if (kind == RecordKind::kPair) return {"input", "target"};
  return {"text"};
}

/// Collects texts, so that the tokenizer encodes many of them at once on all cores.
class TextBatch {
 public:
  TextBatch(const tokenizers::Tokenizer& tokenizer, const PutRecord& put) : tokenizer_(tokenizer), put_(put) {}

  void add(std::string text, std::int32_t label) {
    bytes_ += text.size();
    texts_.push_back(std::move(text));
    labels_.push_back(label);
  }
  void add_target(std::string_view target) {
    bytes_ += target.size();
    targets_.emplace_back(target);
  }
  bool is_full() const { return bytes_ >= kBatchBytes || texts_.size() >= kBatchTexts; }

  void flush() {
    auto ids = tokenizer_.encode_batch(texts_, false);
    auto target_ids =
        targets_.empty() ? std::vector<tokenizers::Tokenizer::Ids>() : tokenizer_.encode_batch(targets_, false);
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      Record record{.label = labels_[i]};
      record.fields.push_back(std::move(ids[i]));
      if (!target_ids.empty()) record.fields.push_back(std::move(target_ids[i]));
      put_(std::move(record));
    }
    texts_.clear();
    targets_.clear();
    labels_.clear();
    bytes_ = 0;
  }

 private:
  const tokenizers::Tokenizer& tokenizer_;
  const PutRecord& put_;
  std::vector<std::string> texts_, targets_;
  std::vector<std::int32_t> labels_;
  std::size_t bytes_ = 0;
};

}  // namespace

Records tokenized(TextSource source, std::shared_ptr<const tokenizers::Tokenizer> tokenizer, std::string prefix) {
  const auto kind = source.kind;
  return {kind_of(kind),
          source.description,
          source.name,
          source.labels,
          fields_of(kind),
          source.parts,
          [kind, read = std::move(source.read), tokenizer = std::move(tokenizer), prefix = std::move(prefix)](
              std::int64_t part, const PutRecord& put) {
            TextBatch batch(*tokenizer, put);
            read(part, [&](const TextRecord& record) {
              batch.add(prefix + std::string(record.text), record.label);
              if (kind == RecordKind::kPair) batch.add_target(record.target);
              if (batch.is_full()) batch.flush();
            });
            batch.flush();
          }};
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kManFolder = "/usr/share/man";
constexpr std::int64_t kShorterSide = 256;
constexpr std::int64_t kGames = 10'000;

fs::path man_folder_of(const PrepareOptions& options) {
  return options.sources.empty() ? fs::path(kManFolder) : options.sources[0];
}

/// Refuses data inside of a source's folder: the next command would read them as a source.
void check_apart(const PrepareOptions& options) {
  std::error_code ignored;
  const auto& given = options.cache.empty() ? options.to : options.cache;
  const auto to = fs::weakly_canonical(given, ignored);
  for (const auto& source : options.sources) {
    if (!fs::is_directory(source, ignored)) continue;
    const auto folder = fs::weakly_canonical(source, ignored);
    const auto relative = to.lexically_relative(folder);
    if (!relative.empty() && *relative.begin() != "..") {
      throw std::runtime_error((options.cache.empty() ? "--to " : "--cache ") + given.native() +
                               ": lies in the source " + source.native() + "; name a folder outside of it");
    }
  }
}

GeneratedOptions generated_options(const PrepareOptions& options) {
  GeneratedOptions out;
  if (options.size > 0) out.size = static_cast<int>(options.size);
  if (options.count > 0) out.count = options.count;
  out.seed = static_cast<std::uint64_t>(options.seed);
  return out;
}

ImageSource open_image_source(const PrepareOptions& options, LeftOut& left_out) {
  if (options.from == From::kShapes) return open_painted(Painted::kShapes, generated_options(options));
  if (options.from == From::kGlyphs) return open_painted(Painted::kGlyphs, generated_options(options));
  if (options.from == From::kTextures) return open_painted(Painted::kTextures, generated_options(options));
  ImageFolderOptions folder;
  folder.folder = options.sources.at(0);
  folder.shorter_side = static_cast<int>(options.size > 0 ? options.size : kShorterSide);
  if (options.skip_damaged)
    folder.on_damaged = [&left_out](const std::string& error) { left_out.add([&] { return error; }); };
  return open_image_folder(folder);
}

JsonlOptions jsonl_options(const PrepareOptions& options, LeftOut& left_out) {
  JsonlOptions out{.files = options.sources,
                   .kind = options.kind,
                   .text_key = options.first_key,
                   .target_key = options.second_key,
                   .label_key = options.second_key,
                   .labels = options.labels,
                   .part_bytes = options.part_bytes,
                   .most_bytes = options.max_bytes};
  if (options.skip_damaged) out.on_damaged = [&left_out](const auto& text) { left_out.add(text); };
  return out;
}

TextSource open_text_source(const PrepareOptions& options, LeftOut& left_out) {
  switch (options.from) {
    case From::kText:
      return open_text_files(
          {.paths = options.sources, .most_bytes = options.max_bytes, .part_bytes = options.part_bytes});
    case From::kJsonl:
      return open_jsonl(jsonl_options(options, left_out));
    case From::kMan:
      return open_man_text({.folder = man_folder_of(options), .most_bytes = options.max_bytes});
    case From::kManPairs:
      return open_man_pairs(
          {.folder = man_folder_of(options), .most_pages = options.count, .may_fall_back = options.sources.empty()});
    case From::kPackages:
      return open_packages({.files = options.sources, .sections = options.sections});
    case From::kChess: {
      ChessGamesOptions games;
      games.games = options.count > 0 ? options.count : kGames;
      games.seed = static_cast<std::uint64_t>(options.seed);
      games.player.plies = static_cast<int>(options.plies);
      games.player.notation = options.notation;
      return open_chess_games(games);
    }
    case From::kAuto:
      if (has_man_text(man_folder_of(options))) {
        return open_man_text({.folder = man_folder_of(options), .most_bytes = options.max_bytes});
      }
      return open_built_in_text(options.max_bytes);
    default:
      return open_built_in_text(options.max_bytes);
  }
}

/// Images as they are.
Records pictures(ImageSource source, std::string name) {
  return {format::Kind::kImages,
          source.description,
          std::move(name),
          source.labels,
          {"image"},
          source.parts,
          [read = std::move(source.read)](std::int64_t part, const PutRecord& put) {
            read(part, [&](const Picture& picture, std::int32_t label) {
              put({.fields = {}, .picture = picture, .label = label});
            });
          }};
}

std::string name_of_images(const PrepareOptions& options) {
  if (options.from == From::kImages) return options.sources.at(0).native();
  return "generated " + std::string(name_of(options.from));
}

}  // namespace

bool has_images(From from) {
  return from == From::kImages || from == From::kShapes || from == From::kGlyphs || from == From::kTextures;
}

Records open_records(const PrepareOptions& options, std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
                     LeftOut& left_out) {
  check_apart(options);
  if (has_images(options.from)) {
    return pictures(open_image_source(options, left_out), name_of_images(options));
  }
  return tokenized(open_text_source(options, left_out), std::move(tokenizer), options.prefix);
}

}  // namespace data::prepare
