#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/usage_error.h"
#include "data/tokenizers/utf8.h"
#include "worker/infer/commands.h"
#include "worker/infer/encode.h"
#include "worker/infer/model.h"

namespace infer {
namespace {

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", share * 100);
  return text;
}

}  // namespace

void run_classify(const Options& options, const Source& source, const std::vector<std::string>& texts,
                  const Console& console) {
  const auto model = open_classifier(source, options);
  const auto& labels = model->labels();
  const auto top = std::min<std::int64_t>(options.top, static_cast<std::int64_t>(labels.size()));
  in_batches(options, source, texts, model->most_positions(), [&](auto group, const auto& ids) {
    const at::Tensor shares = model->logits(ids).softmax(1);
    if (!shares.isfinite().all().template item<bool>()) {
      throw base::UsageError("the logits are not numbers: the weights of " + source.name() +
                             " are damaged, or too large for --dtype " + options.dtype + "; try --dtype fp32");
    }
    const auto [best, numbers] = shares.topk(top, 1);
    for (std::size_t row = 0; row < group.size(); ++row) {
      fsdp::Json found = fsdp::Json::Array();
      std::string line;
      for (std::int64_t i = 0; i < top; ++i) {
        const auto at = static_cast<std::int64_t>(row);
        const double share = best[at][i].template item<double>();
        const auto& label = labels[static_cast<std::size_t>(numbers[at][i].template item<std::int64_t>())];
        fsdp::Json one;
        one["label"] = label;
        one["probability"] = share;
        found.push_back(std::move(one));
        line += (i == 0 ? "" : "  ") + label + " " + percent(share);
      }
      if (options.json) {
        fsdp::Json out;
        out["text"] = data::tokenizers::repaired(group[row]);
        out["labels"] = std::move(found);
        console.out << out.dump() << "\n";
      } else {
        show(console, line + (texts.size() > 1 ? "  " + beginning_of(group[row]) : "") + "\n");
      }
    }
  });
}

}  // namespace infer
