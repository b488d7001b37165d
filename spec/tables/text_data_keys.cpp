#include "spec/tables/text_data_keys.h"

#include <array>

#include "spec/limits.h"
#include "spec/tables/shared_rules.h"

namespace spec {
namespace {

constexpr auto kTextKeys = std::to_array<Key>({
    row::choice("data.source", "auto", "auto man folder fixture",
                "man: this machine's manual pages; folder: the text files below data.path; fixture: a small built-in "
                "text; auto: man where there are pages, else fixture.",
                into<&TextData::source>),
    row::path("data.path", "Folder of text files; required with source = \"folder\", refused otherwise.",
              into<&TextData::path>),
    row::whole("data.sequence_length", "256", {1, kMostSize}, "Tokens in a sample.", into<&TextData::sequence_length>,
               "tokens"),
    row::choice(
        "data.packing", "chunks", "chunks documents",
        "How text becomes rows of sequence_length. chunks: one stream of all texts, cut into pieces. documents: "
        "several whole documents in a row, which do not see each other; for data.prepared.",
        into<&TextData::packing>),
    row::real("data.validation_fraction", "0.05", {0, 0.9}, "Share of the samples kept for validation; 0: none.",
              into<&TextData::validation_fraction>),
    row::size("data.max_bytes", "16MiB", {1024, 1099511627776}, "The most text that is read; the rest is ignored.",
              into<&TextData::max_bytes>),
    row::path("data.cache_folder", derived("chosen by the controller"),
              "Folder of what muster-data makes of data.source.", into<&TextData::cache_folder>),
});

void check_text(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  constexpr std::string_view kVocabulary = "model.vocab_size";
  const auto tokenizer = values.text("data.tokenizer");
  const bool is_bytes = (tokenizer.empty() || tokenizer == "bytes") && values.text("model.pretrained").empty();
  if (values.text("data.prepared").empty() && is_bytes && values.has(kVocabulary) &&
      static_cast<double>(values.whole(kVocabulary)) < kByteVocabulary) {
    add_conflict(conflicts, kVocabulary, "want at least 257: 256 bytes and the end of a text", "leave it out");
  }
  if (values.text("data.packing") == "documents" && values.text("data.prepared").empty()) {
    add_conflict(conflicts, "data.packing", "want \"chunks\" without data.prepared",
                 "prepare the documents with muster data prepare", {"data.prepared"});
  }
  const auto source = values.text("data.source");
  const bool has_path = values.has("data.path");
  if (source != "folder" && has_path) {
    add_conflict(conflicts, "data.path", "want no path with source = \"" + source + "\"",
                 "set data.source = \"folder\", or leave the path out", {"data.source"});
  } else if (source == "folder" && !has_path) {
    add_conflict(conflicts, "data.path", "want the folder of text files that source = \"folder\" reads",
                 "add path = \"...\"", {"data.source"});
  }
}

constexpr auto kSequenceKeys = std::to_array<Key>({
    row::whole("data.sequence_length", "128", {2, kMostSize},
               "The most tokens of a text, special ones included; longer texts are cut.",
               into<&Sequence::sequence_length>, "tokens"),
});

void check_sequence(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  want_prepared_data(values, conflicts);
}

constexpr auto kPreparedDataKeys = std::to_array<Key>({
    row::path("data.prepared",
              "Folder that muster data prepare has written. Its splits train and validation are used, and the other "
              "keys that choose data have no effect.",
              into<&PreparedData::prepared>),
    row::text("data.tokenizer",
              "The tokenizer that the data must be made with: a folder, a file, or bytes. Without it, that of "
              "model.pretrained; without both, the data's own is taken, which is bytes for data.source.",
              into<&PreparedData::tokenizer>),
    row::whole("data.bucket_batches", "0", {0, kMostCount},
               "How many batches are sorted by length together, so that a batch has samples of similar lengths and "
               "little padding; 0: none.",
               into<&PreparedData::bucket_batches>, "batches"),
    row::whole("data.loader_threads", "1", {0, 64},
               "Threads of each rank that make batches ahead; 0: the training makes them itself. Batches are equal.",
               into<&PreparedData::loader_threads>, "threads"),
    row::whole("data.loader_ahead", "2", {1, 1024}, "Micro-batches that these threads make ahead.",
               into<&PreparedData::loader_ahead>, "batches"),
});

}  // namespace

const Table& text_data() {
  static const Table table{"text", kTextKeys, nullptr, check_text};
  return table;
}

const Table& sequence() {
  static const Table table{"sequence", kSequenceKeys, nullptr, check_sequence};
  return table;
}

void want_prepared_data(const Values& values, std::vector<Conflict>& conflicts) {
  if (!values.text("data.prepared").empty()) return;
  add_conflict(conflicts, "data.prepared",
               "want the folder that muster data prepare has written, which this recipe trains on",
               "add prepared = \"...\" to [data]", {"train.recipe"});
}

const Table& prepared_data() {
  static const Table table{"prepared_data", kPreparedDataKeys};
  return table;
}

}  // namespace spec
