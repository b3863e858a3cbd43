// Parts that the bodies of the attention operators share. B batch, S queries, T keys, H heads, D size of a head.
#pragma once

#include "engine/onnx/expand/expansion.h"

namespace gradloom::attend {

struct Heads {
  ValueId q = kNone, k = kNone, v = kNone;  // [B, H, S or T, D]
  std::int64_t past = 0;                    // keys before those of the first query; -1: not known
};

struct Scores {
  ValueId raw, capped, masked, softmax;
  // Boolean [.., S, 1]: queries with a key; their results count. None: all, or softmax says so.
  ValueId rows = kNone;
};

struct MaskUse {
  ValueId bias = kNone;     // added
  ValueId allowed = kNone;  // boolean; rows may be all false
  bool causal = false;
};

Result<ValueId> split_heads(Expander& e, ValueId x, std::int64_t heads);  // [B, S, H D] -> [B, H, S, D]
Result<ValueId> merge_heads(Expander& e, ValueId x);                      // [B, H, S, D] -> [B, S, H D]

double default_scale(std::int64_t head_size);

// `scores_read`: they or the probabilities are an output of the node.
Result<Scores> attention_scores(Expander& e, const Heads& h, double scale, double softcap, DType softmax_type,
                                MaskUse mask, bool scores_read);

// softmax V, 0 for queries without any key.
Result<ValueId> weighted_values(Expander& e, const Scores& s, ValueId v);

// Appends K and V to the past, if there is one; the results are the present of outputs 1 and 2.
Status add_past(Expander& e, Heads* h, ValueId past_key, ValueId past_value);

// first, first + 1, .., end - 1.
Result<ValueId> line(Expander& e, std::int64_t first, std::int64_t end);

// allowed[b, 0, 0, j] = j < lengths[b]
Result<ValueId> length_mask(Expander& e, ValueId lengths, std::int64_t keys);

}  // namespace gradloom::attend
