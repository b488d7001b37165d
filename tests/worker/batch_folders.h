#pragma once

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "data/format/dataset.h"
#include "data/format/writer.h"
#include "tests/worker/temporary_folder.h"
#include "worker/batch/batch.h"

namespace worker::testing {

using Ids = std::vector<std::uint32_t>;
using Numbers = std::vector<std::int64_t>;

struct Record {
  std::vector<Ids> fields;
  std::int32_t label = -1;
};
using Records = std::vector<Record>;

inline Records texts(const std::vector<Ids>& documents) {
  Records out;
  for (const auto& document : documents) out.push_back({{document}});
  return out;
}

inline const base::Sha256::Digest kTestTokenizer = base::sha256("a tokenizer");

/// A folder of prepared data of texts. By default ids are below 1000, and the tokenizer has no special tokens.
class PreparedFolder {
 public:
  using Change = std::function<void(data::format::Description&)>;

  PreparedFolder(data::format::Kind kind, const std::map<std::string, Records>& splits, const Change& change = {}) {
    data::format::Description description;
    description.kind = kind;
    description.source = description.made_by = "a test";
    description.tokenizer_kind = "tokenizer.json";
    description.tokenizer_sha256 = base::hex(kTestTokenizer);
    description.vocabulary = 1000;
    description.fields = kind == data::format::Kind::kPairs ? std::vector<std::string>{"input", "target"}
                                                            : std::vector<std::string>{"text"};
    if (change) change(description);
    for (const auto& [name, records] : splits) {
      data::format::Writer writer(folder_ / data::format::file_name(name, 0), kind,
                                  static_cast<std::uint64_t>(description.vocabulary), kTestTokenizer);
      for (const auto& record : records) {
        std::vector<std::span<const std::uint32_t>> fields(record.fields.begin(), record.fields.end());
        writer.add(fields, record.label);
      }
      description.splits[name].files = {writer.finish()};
    }
    data::format::write_description(folder_.path(), description);
  }

  const std::filesystem::path& path() const { return folder_.path(); }
  std::shared_ptr<const data::format::Dataset> open(const std::string& split = "train") const {
    return std::make_shared<data::format::Dataset>(data::format::Dataset::open(path(), split));
  }

 private:
  TemporaryFolder folder_{test::memory_folder()};
};

/// A folder with the split train of these documents.
inline PreparedFolder folder_of_texts(const std::vector<Ids>& documents, const PreparedFolder::Change& change = {}) {
  return PreparedFolder(data::format::Kind::kTokens, {{"train", texts(documents)}}, change);
}

/// The batch of these samples, with their draws in epoch 0 of seed 1.
inline Batch collated(const BatchSource& source, const Numbers& samples) {
  std::vector<std::uint64_t> draws;
  for (const auto sample : samples) draws.push_back(sample_draw(1, 0, sample));
  return source.collate(samples, draws);
}

inline Numbers numbers_of(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kLong).contiguous();
  return {wide.data_ptr<std::int64_t>(), wide.data_ptr<std::int64_t>() + wide.numel()};
}

inline std::vector<Numbers> rows_in(const at::Tensor& tensor) {
  std::vector<Numbers> out;
  for (std::int64_t row = 0; row < tensor.size(0); ++row) out.push_back(numbers_of(tensor[row]));
  return out;
}

inline void expect_equal(const Batch& is, const Batch& want) {
  EXPECT_EQ(is.samples, want.samples);
  EXPECT_EQ(is.tokens, want.tokens);
  EXPECT_EQ(is.weight, want.weight);
  ASSERT_EQ(is.tensors.size(), want.tensors.size());
  for (const auto& [name, tensor] : want.tensors) EXPECT_TRUE(at::equal(is.at(name), tensor)) << name;
}

}  // namespace worker::testing
