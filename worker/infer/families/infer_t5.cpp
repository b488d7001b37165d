#include <memory>

#include "worker/generate/generate_t5.h"
#include "worker/infer/infer_model.h"
#include "worker/models/t5/t5_hf.h"
#include "worker/models/t5/t5_model.h"

namespace infer {
namespace {

class T5Generator : public Generator {
 public:
  T5Generator(const Source& source, const Options& options)
      : loaded_(
            source, options,
            [&] {
              return std::make_shared<worker::T5ForConditionalGeneration>(
                  spec::bind<spec::T5>(spec::t5(), source.values));
            },
            [](const std::string& parameter) { return worker::is_wide_in_t5(parameter); }),
        answers_(worker::answers_of(dynamic_cast<worker::T5ForConditionalGeneration&>(loaded_.module()),
                                    loaded_.activations())) {}

  bool answers() const override { return true; }
  std::int64_t most_positions() const override { return 0; }
  std::vector<worker::TokenIds> generate(const std::vector<worker::TokenIds>& prompts, const worker::Sampling& sampling,
                                         const worker::OnToken& on_token) override {
    return worker::generate(*answers_, prompts, sampling, worker::done_alone, on_token);
  }

 private:
  LoadedModel loaded_;
  std::unique_ptr<worker::EncoderDecoder> answers_;
};

}  // namespace

std::unique_ptr<Generator> t5_generator(const Source& source, const Options& options) {
  return std::make_unique<T5Generator>(source, options);
}

}  // namespace infer
