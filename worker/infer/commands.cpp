#include "worker/infer/commands.h"

namespace infer {

void run(const Options& options, const std::vector<std::string>& texts, const Console& console) {
  const Source source = open_source(options);
  console.notes << "muster-infer: " << source.name() << ", " << options.dtype << "\n";
  switch (options.command) {
    case Command::kGenerate:
      run_generate(options, source, texts, console);
      break;
    case Command::kEmbed:
      run_embed(options, source, texts, console);
      break;
    case Command::kClassify:
      run_classify(options, source, texts, console);
      break;
  }
  finish(console);
}

}  // namespace infer
