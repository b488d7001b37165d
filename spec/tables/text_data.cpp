#include "spec/tables/text_data.h"

#include <array>

#include "spec/limits.h"

namespace spec {
namespace {

constexpr auto kKeys = std::to_array<Key>({
    {.name = "data.source",
     .kind = Kind::kChoice,
     .standard = "auto",
     .choices = "auto man folder fixture",
     .meaning = "man: this machine's manual pages; folder: the text files below data.path; fixture: a small built-in "
                "text; auto: man where there are pages, else fixture.",
     .assign = into<&TextData::source>},
    {.name = "data.path",
     .kind = Kind::kPath,
     .meaning = "Folder of text files; required with source = \"folder\", refused otherwise.",
     .assign = into<&TextData::path>},
    {.name = "data.sequence_length",
     .kind = Kind::kWhole,
     .standard = "256",
     .low = 1,
     .high = kMostSize,
     .unit = "tokens",
     .meaning = "Tokens in a sample.",
     .assign = into<&TextData::sequence_length>},
    {.name = "data.packing",
     .kind = Kind::kChoice,
     .standard = "chunks",
     .choices = "chunks documents",
     .meaning =
         "How text becomes rows of sequence_length. chunks: one stream of all texts, cut into pieces. documents: "
         "several whole documents in a row, which do not see each other; for data.prepared.",
     .assign = into<&TextData::packing>},
    {.name = "data.validation_fraction",
     .kind = Kind::kReal,
     .standard = "0.05",
     .low = 0,
     .high = 0.9,
     .meaning = "Share of the samples kept for validation; 0: none.",
     .assign = into<&TextData::validation_fraction>},
    {.name = "data.max_bytes",
     .kind = Kind::kSize,
     .standard = "16MiB",
     .low = 1024,
     .high = 1099511627776,
     .meaning = "The most text that is read; the rest is ignored.",
     .assign = into<&TextData::max_bytes>},
    {.name = "data.cache_folder",
     .kind = Kind::kPath,
     .derived = "chosen by the controller",
     .meaning = "Folder of what muster-data makes of data.source.",
     .assign = into<&TextData::cache_folder>},
});

void check(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  constexpr std::string_view kVocabulary = "model.vocab_size";
  const auto tokenizer = values.text("data.tokenizer");
  const bool is_bytes = (tokenizer.empty() || tokenizer == "bytes") && values.text("model.pretrained").empty();
  if (values.text("data.prepared").empty() && is_bytes && values.has(kVocabulary) &&
      static_cast<double>(values.whole(kVocabulary)) < kByteVocabulary) {
    conflicts.push_back(
        {std::string(kVocabulary), "want at least 257: 256 bytes and the end of a text", "leave it out", {}});
  }
  if (values.text("data.packing") == "documents" && values.text("data.prepared").empty()) {
    conflicts.push_back({"data.packing",
                         "want \"chunks\" without data.prepared",
                         "prepare the documents with muster data prepare",
                         {"data.prepared"}});
  }
  const auto source = values.text("data.source");
  const bool has_path = values.has("data.path");
  if (source != "folder" && has_path) {
    conflicts.push_back({"data.path",
                         "want no path with source = \"" + source + "\"",
                         "set data.source = \"folder\", or leave the path out",
                         {"data.source"}});
  } else if (source == "folder" && !has_path) {
    conflicts.push_back({"data.path",
                         "want the folder of text files that source = \"folder\" reads",
                         "add path = \"...\"",
                         {"data.source"}});
  }
}

}  // namespace

const Table& text_data() {
  static const Table table{"text", kKeys, nullptr, check};
  return table;
}

}  // namespace spec
