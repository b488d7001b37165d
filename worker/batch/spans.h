#pragma once

#include <cstdint>
#include <memory>

#include "data/format/reader.h"
#include "data/order/spans.h"
#include "worker/batch/pairs.h"
#include "worker/batch/source.h"

namespace worker {

/// Span corruption of the documents of a split of kind tokens, for an encoder-decoder; see SpanOptions. Documents are
/// cut into pieces whose inputs and targets have at most the lengths of `sizes`, and a piece is a sample. The
/// tokenizer's end-of-text token ends input and target; spans.eos is ignored. Each epoch cuts other spans out of a
/// piece. A piece's weight is the number of its target's tokens.
///
/// Tensors: input_ids, attention_mask, targets. Throws base::UsageError naming the value and the remedy for lengths
/// without room for a text, options out of range, sentinels outside the vocabulary, and for a split without a token.
std::shared_ptr<const BatchSource> corrupted_spans(std::shared_ptr<const data::format::Dataset> split,
                                                   const data::order::SpanOptions& spans, const PairOptions& sizes);

}  // namespace worker
