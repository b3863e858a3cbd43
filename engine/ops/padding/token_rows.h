// Positions of a padded batch as rows, without those that only fill it up. The pass drop-padding makes such nodes; no file
// has them.
//   TokenRows(mask [b, t]) -> rows i32[b t], places i32[b, t], count i64[1]
//     mask: not 0 (attribute inverted = 1: 0) at a token. rows[r]: position of token r, positions counted through the
//     batch; b t behind the last. places[p]: the row of position p; b t: padding. count: how many tokens there are.
//   PackRows(x [b, t, d..], rows, places, count) -> [b t, d..]: y[r] = x[rows[r]], 0 behind the last token
//   UnpackRows(y [b t, d..], rows, places, count) -> [b, t, d..]: x[p] = y[places[p]], 0 at padding
// Each of the two is the other's gradient.
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

const OpDef& token_rows_op();
const OpDef& pack_rows_op();
const OpDef& unpack_rows_op();

}  // namespace gradloom
