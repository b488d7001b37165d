// Computes the worker's metrics for metrics_test.py. A line of input is a JSON object, and so is its line of output:
//   {"target": text, "prediction": text}               {"rouge1": [precision, recall, f1], "rouge2": ..., ...}
//   {"classes": n, "truths": [...], "guesses": [...]}  {"accuracy": a, "macro_f1": f, "precision": [...], "recall":
//   ...}

#include <cstdint>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/metrics/classification.h"
#include "worker/metrics/rouge.h"

namespace worker {
namespace {

using Json = nlohmann::json;

Json to_json(const Rouge& score) {
  return {score.precision, score.recall, score.f1};
}

Json rouge_of(const Json& asked) {
  const auto scores = rouge(asked.at("target").get<std::string>(), asked.at("prediction").get<std::string>());
  return {{"rouge1", to_json(scores.one)},
          {"rouge2", to_json(scores.two)},
          {"rougeL", to_json(scores.l)},
          {"rougeLsum", to_json(scores.l_sum)}};
}

/// Half of the samples each in a table of its own, as of two ranks.
Json classification_of(const Json& asked) {
  const int classes = asked.at("classes");
  const auto truths = asked.at("truths").get<std::vector<int>>(), guesses = asked.at("guesses").get<std::vector<int>>();
  Confusion first(classes), second(classes);
  for (std::size_t i = 0; i < truths.size(); ++i) (i % 2 == 0 ? first : second).add(truths[i], guesses.at(i));
  first.add(second);
  Json answer{{"accuracy", first.accuracy()}, {"macro_f1", first.macro_f1()}, {"counts", first.counts()}};
  for (int label = 0; label < classes; ++label) {
    const auto scores = first.of_class(label);
    answer["precision"].push_back(scores.precision);
    answer["recall"].push_back(scores.recall);
    answer["f1"].push_back(scores.f1);
  }
  return answer;
}

int run() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto asked = Json::parse(line);
    std::cout << (asked.contains("classes") ? classification_of(asked) : rouge_of(asked)) << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace worker

int main() try { return worker::run(); } catch (const std::exception& error) {
  std::cerr << "peers_metrics: " << error.what() << "\n";
  return 1;
}
