#include "worker/batch/prepared_data.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/usage_error.h"

namespace worker {
namespace {

/// The option of `muster data prepare` that makes data of a kind.
std::string_view sources_of(data::format::Kind kind) {
  switch (kind) {
    case data::format::Kind::kTokens:
      return "text, jsonl, man or chess";
    case data::format::Kind::kPairs:
      return "man-pairs, or jsonl with --fields input,target";
    case data::format::Kind::kLabelled:
      return "packages, or jsonl with --fields text,label";
    case data::format::Kind::kImages:
      return "images, shapes, glyphs or textures";
  }
  return "";
}

/// Enough of a SHA-256 to tell two apart.
std::string short_of(const std::string& sha256) {
  return sha256.substr(0, 12) + "...";
}

void check_tokenizer(const data::format::Description& is, const PreparedNeeds& needs) {
  if (is.kind == data::format::Kind::kImages) return;
  if (needs.tokenizer && needs.tokenizer->sha256 != is.tokenizer_sha256) {
    const ModelTokenizer& want = *needs.tokenizer;
    throw base::UsageError("made with another tokenizer (" + is.tokenizer_kind + ", sha256 " +
                           short_of(is.tokenizer_sha256) + "; " +
                           (want.kind == want.path ? want.kind : want.kind + " of " + want.path) + " has " +
                           short_of(want.sha256) + "); prepare it again with --tokenizer " + want.path);
  }
  if (needs.vocabulary && is.vocabulary > *needs.vocabulary) {
    throw base::UsageError("its vocabulary has " + std::to_string(is.vocabulary) +
                           " tokens, more than model.vocab_size = " + std::to_string(*needs.vocabulary) +
                           "; give the model at least as many, or prepare the data again with the model's tokenizer");
  }
}

std::shared_ptr<const data::format::Dataset> open_split(const std::filesystem::path& folder, std::string_view split,
                                                        int rank, int world_size) {
  auto out = std::make_shared<data::format::Dataset>(data::format::Dataset::open(folder, split));
  out->verify(rank, world_size);
  return out;
}

PreparedData open_for(const std::filesystem::path& folder, const PreparedNeeds& needs, int rank, int world_size) {
  PreparedData out;
  out.description = data::format::read_description(folder);
  check_kind(out.description, needs);
  check_tokenizer(out.description, needs);
  out.train = open_split(folder, "train", rank, world_size);
  if (out.train->records() == 0) throw base::UsageError("its split train has no records; prepare more data");
  const auto validation = out.description.splits.find("validation");
  if (validation != out.description.splits.end() && validation->second.records > 0) {
    out.validation = open_split(folder, "validation", rank, world_size);
  }
  return out;
}

}  // namespace

void check_kind(const data::format::Description& is, const PreparedNeeds& needs) {
  if (std::find(needs.kinds.begin(), needs.kinds.end(), is.kind) != needs.kinds.end()) return;
  std::string wants, sources;
  for (const auto kind : needs.kinds) {
    wants += (wants.empty() ? "" : " or ") + std::string(data::format::name_of(kind));
    sources += (sources.empty() ? "" : "; ") + std::string(sources_of(kind));
  }
  throw base::UsageError("it holds " + std::string(data::format::name_of(is.kind)) + ", and the recipe " +
                         needs.recipe + " trains on " + wants + "; prepare those: muster data prepare --from " +
                         sources);
}

PreparedData open_prepared(const std::filesystem::path& folder, const PreparedNeeds& needs, int rank, int world_size) {
  try {
    return open_for(folder, needs, rank, world_size);
  } catch (const std::system_error&) {
    throw;  // it names the path, and the next attempt may succeed
  } catch (const std::runtime_error& error) {
    const std::string place = needs.place.empty() ? "data.prepared = " + folder.string() : needs.place;
    throw base::UsageError(place + ": " + error.what());
  }
}

}  // namespace worker
