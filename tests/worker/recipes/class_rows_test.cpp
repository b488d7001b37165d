// Goal: a row of a pretrained classifier means the same label before and after a training, or the job is refused.
// Method: config.json of a classifier with labels in an order of its own, and data whose labels are sorted.
#include "worker/recipes/classify.h"

#include <gmock/gmock.h>

#include "base/usage_error.h"

namespace worker {
namespace {

using spec::ClassHead;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Labels = std::vector<std::string>;

/// A model whose files have a classifier, or not.
ChosenModel with_labels(const char* config, bool has_head = true) {
  ChosenModel model;
  model.pretrained = "models/own";
  model.files.config = fsdp::Json::parse(config);
  std::set<std::string, std::less<>> tensors{"bert.embeddings.word_embeddings.weight"};
  if (has_head) tensors.insert("classifier.weight");
  model.files.tensors = std::make_shared<const std::set<std::string, std::less<>>>(tensors);
  return model;
}

constexpr const char* kMoods = R"({"id2label": {"0": "positive", "1": "negative", "2": "neutral"}})";
const Labels kSorted{"negative", "neutral", "positive"};

std::string refusal(const ChosenModel& model, const Labels& labels, ClassHead head = ClassHead::kByName) {
  try {
    class_rows(model, labels, head);
    return "taken";
  } catch (const base::UsageError& error) {
    return error.what();
  }
}

TEST(ClassRows, BelongToTheLabelsThatConfigNames) {
  const auto rows = class_rows(with_labels(kMoods), kSorted, ClassHead::kByName);
  EXPECT_THAT(rows.labels, ElementsAre("positive", "negative", "neutral"));
  EXPECT_THAT(rows.row_of, ElementsAre(1, 2, 0));
  EXPECT_FALSE(rows.is_drawn);
  EXPECT_THAT(rows.by_row({10, 20, 30}), ElementsAre(30, 10, 20)) << "weights of negative, neutral, positive";
}

TEST(ClassRows, AreTheDatasWhereTheFilesHaveNone) {
  for (const auto& model : {with_labels(kMoods, /*has_head=*/false), ChosenModel()}) {
    const auto rows = class_rows(model, {"b", "a"}, ClassHead::kByName);
    EXPECT_THAT(rows.labels, ElementsAre("b", "a"));
    EXPECT_THAT(rows.row_of, ElementsAre(0, 1));
    EXPECT_FALSE(rows.is_drawn) << "the files lack it, so that it is drawn anyway";
  }
}

TEST(ClassRows, WithoutNamesAreNumbers) {
  const auto rows = class_rows(with_labels(R"({"num_labels": 3})"), {"0", "1", "2"}, ClassHead::kByName);
  EXPECT_THAT(rows.row_of, ElementsAre(0, 1, 2));
  EXPECT_THAT(rows.labels, ElementsAre("0", "1", "2"));
}

TEST(ClassRows, OfOtherLabelsAreRefusedWithTheKey) {
  EXPECT_THAT(refusal(with_labels(kMoods), {"bad", "good", "neutral"}),
              AllOf(HasSubstr("model.pretrained = \"models/own\": its classifier has the labels \"positive\", "
                              "\"negative\", \"neutral\", and the data have \"bad\", \"good\", \"neutral\""),
                    HasSubstr("set train.head = \"new\""), HasSubstr("or \"by_number\"")));
  EXPECT_THAT(refusal(with_labels(kMoods), {"a", "b", "c", "d", "e"}),
              AllOf(HasSubstr("set train.head = \"new\""), Not(HasSubstr("by_number"))));
  EXPECT_THAT(refusal(with_labels(kMoods), {"a", "b"}, ClassHead::kByNumber), HasSubstr("train.head = \"new\""));
  EXPECT_THAT(refusal(with_labels(R"({"id2label": {"0": "a", "1": "a"}})"), {"a", "b"}), HasSubstr("train.head"));
  EXPECT_THAT(refusal(with_labels(R"({"id2label": {"1": "a"}})"), {"a", "b"}), HasSubstr("lacks number 0"));
}

TEST(ClassRows, AreTakenByNumberOrDrawnWhereTheJobSaysSo) {
  const auto by_number = class_rows(with_labels(kMoods), {"a", "b", "c"}, ClassHead::kByNumber);
  EXPECT_THAT(by_number.labels, ElementsAre("a", "b", "c"));
  EXPECT_FALSE(by_number.is_drawn);
  const auto drawn = class_rows(with_labels(kMoods), {"a", "b", "c", "d"}, ClassHead::kNew);
  EXPECT_THAT(drawn.labels, ElementsAre("a", "b", "c", "d"));
  EXPECT_TRUE(drawn.is_drawn);
}

TEST(ClassRows, OfACheckpointHaveTheNamesThatItWasSavedWith) {
  ChosenModel model = with_labels(kMoods);
  model.files.tensors = nullptr;  // the folder may be gone
  for (const auto head : {ClassHead::kByName, ClassHead::kByNumber, ClassHead::kNew}) {
    const auto rows = class_rows(model, kSorted, head);
    EXPECT_THAT(rows.row_of, ElementsAre(1, 2, 0));
    EXPECT_FALSE(rows.is_drawn);
  }
}

}  // namespace
}  // namespace worker
