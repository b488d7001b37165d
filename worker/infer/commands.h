#pragma once

#include <string>
#include <vector>

#include "worker/infer/console.h"
#include "worker/infer/infer_options.h"
#include "worker/infer/model_source.h"

namespace infer {

/// Continues each text by a decoder, or answers it by an encoder-decoder. Prints text and continuation, or the answer.
/// With --json an object a line: prompt, text (what is new), tokens, ended (an end came). A single text is printed as
/// its tokens come. Throws base::UsageError for a family that writes no text, and for a text that leaves no room.
void run_generate(const Options& options, const Source& source, const std::vector<std::string>& texts,
                  const Console& console);

/// Prints a vector for each text: numbers with spaces between them. With --json an object a line: text, embedding. With
/// --to all vectors are the tensor "embeddings", fp32 [texts, hidden], of a new safetensors file. Throws
/// base::UsageError for a family without vectors, and for a text that is empty or too long. Of a family that sees
/// images `texts` are paths of files or folders, and the object of --json has the path as its image.
void run_embed(const Options& options, const Source& source, const std::vector<std::string>& texts,
               const Console& console);

/// Prints the most likely labels of each text with their probabilities. With --json an object a line: text, labels.
/// Throws base::UsageError for a model without labels, and for a text that is empty or too long.
void run_classify(const Options& options, const Source& source, const std::vector<std::string>& texts,
                  const Console& console);

/// Runs the command of the options.
void run(const Options& options, const std::vector<std::string>& texts, const Console& console);

}  // namespace infer
