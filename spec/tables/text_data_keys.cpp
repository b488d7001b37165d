#include "spec/tables/text_data_keys.h"

#include <array>

#include "spec/limits.h"

namespace spec {
namespace {

constexpr auto kTextKeys = std::to_array<Key>({
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

void check_text(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
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
  static const Table table{"text", kTextKeys, nullptr, check_text};
  return table;
}

namespace {

constexpr auto kSequenceKeys = std::to_array<Key>({
    {.name = "data.sequence_length",
     .kind = Kind::kWhole,
     .standard = "128",
     .low = 2,
     .high = kMostSize,
     .unit = "tokens",
     .meaning = "The most tokens of a text, special ones included; longer texts are cut.",
     .assign = into<&Sequence::sequence_length>},
});

void check_sequence(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  want_prepared_data(values, conflicts);
}

}  // namespace

const Table& sequence() {
  static const Table table{"sequence", kSequenceKeys, nullptr, check_sequence};
  return table;
}

namespace {

constexpr auto kPreparedDataKeys = std::to_array<Key>({
    {.name = "data.prepared",
     .kind = Kind::kPath,
     .meaning = "Folder that muster data prepare has written. Its splits train and validation are used, and the other "
                "keys that choose data have no effect.",
     .assign = into<&PreparedData::prepared>},
    {.name = "data.tokenizer",
     .meaning = "The tokenizer that the data must be made with: a folder, a file, or bytes. Without it, that of "
                "model.pretrained; without both, the data's own is taken, which is bytes for data.source.",
     .assign = into<&PreparedData::tokenizer>},
    {.name = "data.bucket_batches",
     .kind = Kind::kWhole,
     .standard = "0",
     .low = 0,
     .high = kMostCount,
     .unit = "batches",
     .meaning = "How many batches are sorted by length together, so that a batch has samples of similar lengths and "
                "little padding; 0: none.",
     .assign = into<&PreparedData::bucket_batches>},
    {.name = "data.loader_threads",
     .kind = Kind::kWhole,
     .standard = "1",
     .low = 0,
     .high = 64,
     .unit = "threads",
     .meaning = "Threads of each rank that make batches ahead; 0: the training makes them itself. Batches are equal.",
     .assign = into<&PreparedData::loader_threads>},
    {.name = "data.loader_ahead",
     .kind = Kind::kWhole,
     .standard = "2",
     .low = 1,
     .high = 1024,
     .unit = "batches",
     .meaning = "Micro-batches that these threads make ahead.",
     .assign = into<&PreparedData::loader_ahead>},
});

}  // namespace

void want_prepared_data(const Values& values, std::vector<Conflict>& conflicts) {
  if (!values.text("data.prepared").empty()) return;
  conflicts.push_back({"data.prepared",
                       "want the folder that muster data prepare has written, which this recipe trains on",
                       "add prepared = \"...\" to [data]",
                       {"train.recipe"}});
}

const Table& prepared_data() {
  static const Table table{"prepared_data", kPreparedDataKeys};
  return table;
}

}  // namespace spec
