#include "data/tokenizers/json_tokenizer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "muster_tokenizers.h"

namespace data::tokenizers {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kProbes = 256;

const std::uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

/// An open tokenizer of the crate. Throws std::runtime_error with the file's path.
class Crate {
 public:
  using Ids = Tokenizer::Ids;

  explicit Crate(const JsonSource& source) : file_(source.file) {
    check(mt_open(bytes_of(source.text), source.text.size(), &handle_),
          source.kind == "tokenizer.json"
              ? "not a usable tokenizer.json, as version 0.22 of the library tokenizers writes it"
              : "the library tokenizers cannot use what the file describes");
  }
  ~Crate() { mt_close(handle_); }
  Crate(Crate&& other) noexcept : file_(std::move(other.file_)), handle_(std::exchange(other.handle_, nullptr)) {}
  Crate& operator=(Crate&&) = delete;

  Ids encode(std::string_view text, bool with_special) const {
    std::uint32_t* ids = nullptr;
    std::size_t count = 0;
    check(mt_encode(handle_, bytes_of(text), text.size(), with_special ? 1 : 0, &ids, &count), "cannot encode a text");
    const FreeIds owner(ids, {count});
    return {ids, ids + count};
  }

  std::vector<Ids> encode_batch(std::span<const std::string> texts, bool with_special) const {
    std::vector<const std::uint8_t*> begins;
    std::vector<std::size_t> sizes, ends(texts.size());
    for (const auto& text : texts) {
      begins.push_back(bytes_of(text));
      sizes.push_back(text.size());
    }
    std::uint32_t* ids = nullptr;
    std::size_t count = 0;
    check(mt_encode_batch(handle_, begins.data(), sizes.data(), texts.size(), with_special ? 1 : 0, &ids, &count,
                          ends.data()),
          "cannot encode a text");
    const FreeIds owner(ids, {count});
    std::vector<Ids> result;
    result.reserve(texts.size());
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      result.emplace_back(ids + begin, ids + end);
      begin = end;
    }
    return result;
  }

  std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const {
    std::uint8_t* text = nullptr;
    std::size_t bytes = 0;
    check(mt_decode(handle_, ids.data(), ids.size(), skip_special ? 1 : 0, &text, &bytes), "cannot decode ids");
    return taken(text, bytes);
  }

  std::string piece(std::uint32_t id) const {
    auto text = piece_if_any(id);
    check(text ? 0 : 1, "no such piece");
    return *std::move(text);
  }

  std::optional<Piece> find(std::string_view text) const {
    Piece piece;
    int is_special = 0;
    if (mt_id(handle_, bytes_of(text), text.size(), &piece.id, &is_special) != 0) return std::nullopt;
    piece.is_special = is_special != 0;
    return piece;
  }

  std::optional<std::string> piece_if_any(std::uint32_t id) const {
    std::uint8_t* text = nullptr;
    std::size_t bytes = 0;
    if (mt_piece(handle_, id, &text, &bytes) != 0) return std::nullopt;
    return taken(text, bytes);
  }

  std::int64_t vocabulary() const { return static_cast<std::int64_t>(mt_vocabulary(handle_)); }

  [[noreturn]] void refuse(const std::string& what) const { throw std::runtime_error(file_.string() + ": " + what); }

 private:
  struct IdsDeleter {
    std::size_t count;
    void operator()(std::uint32_t* ids) const { mt_free_ids(ids, count); }
  };
  using FreeIds = std::unique_ptr<std::uint32_t, IdsDeleter>;

  struct BytesDeleter {
    std::size_t bytes;
    void operator()(std::uint8_t* text) const { mt_free_bytes(text, bytes); }
  };

  static std::string taken(std::uint8_t* text, std::size_t bytes) {
    const std::unique_ptr<std::uint8_t, BytesDeleter> owner(text, {bytes});
    return {text, text + bytes};
  }

  void check(int failed, const char* what) const {
    if (failed != 0) refuse(std::string(what) + ": " + mt_error());
  }

  fs::path file_;
  void* handle_ = nullptr;
};

struct Around {
  Tokenizer::Ids prefix, suffix;
};

/// The ids that the post-processor adds around this text; nothing if the text has no ids.
std::optional<Around> around(const Crate& crate, const std::string& text) {
  const auto plain = crate.encode(text, false);
  const auto with = crate.encode(text, true);
  const auto begin = std::search(with.begin(), with.end(), plain.begin(), plain.end());
  if (plain.empty()) return std::nullopt;
  if (begin == with.end()) {
    crate.refuse("its post-processor changes the ids of a text; want one that only adds ids before and after them");
  }
  return Around{{with.begin(), begin}, {begin + static_cast<std::ptrdiff_t>(plain.size()), with.end()}};
}

/// The text that is tried is "a", or else the first piece that has ids. A special piece could be mistaken for an added
/// one, so none is tried.
Around find_around(const Crate& crate) {
  for (std::uint32_t probe = 0; probe <= kProbes; ++probe) {
    const std::optional<std::string> text = probe == 0 ? "a" : crate.piece_if_any(probe - 1);
    if (!text) continue;
    const auto found = crate.find(*text);
    if (found && found->is_special) continue;
    if (auto result = around(crate, *text)) return *std::move(result);
  }
  crate.refuse("gives no id for any of the texts that were tried; is it the right file?");
}

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(Crate crate, Facts facts) : Tokenizer(std::move(facts)), crate_(std::move(crate)) {}

  static std::shared_ptr<const Tokenizer> open(const JsonSource& source) {
    Crate crate(source);
    if (crate.vocabulary() == 0) crate.refuse("an empty vocabulary; is it the right file?");
    Around added = find_around(crate);
    const auto find = [&](std::string_view piece) { return crate.find(piece); };
    const fs::path folder = source.file.parent_path();
    Facts facts{.kind = source.kind,
                .sha256 = source.sha256,
                .special = special_tokens(folder, find),
                .prefix = std::move(added.prefix),
                .suffix = std::move(added.suffix)};
    if (source.kind == "tokenizer.json") {
      check_tokenizer_config(
          folder, {.text = source.text, .special = facts.special, .prefix = facts.prefix, .suffix = facts.suffix},
          find);
    } else {
      check_known_members(folder);
    }
    return std::make_shared<JsonTokenizer>(std::move(crate), std::move(facts));
  }

  Ids encode(std::string_view text, bool with_special) const override { return crate_.encode(text, with_special); }
  std::vector<Ids> encode_batch(std::span<const std::string> texts, bool with_special) const override {
    return crate_.encode_batch(texts, with_special);
  }
  std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const override {
    return crate_.decode(ids, skip_special);
  }
  std::int64_t vocabulary() const override { return crate_.vocabulary(); }
  std::string piece(std::uint32_t id) const override { return crate_.piece(id); }

 private:
  Crate crate_;
};

}  // namespace

std::shared_ptr<const Tokenizer> open_json(const JsonSource& source) {
  return JsonTokenizer::open(source);
}

}  // namespace data::tokenizers
