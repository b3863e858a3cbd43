#include "engine/ops/collectives/exchanges.h"

#include "engine/ops/collectives/adasum.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/collectives/share_parameters.h"

namespace gradloom {

bool is_exchange(const OpDef& op) {
  return &op == &all_reduce_op() || &op == &all_reduce_begin_op() || &op == &all_reduce_adasum_op() ||
         &op == &all_reduce_sum_op() || &op == &reduce_gradients_op() || &op == &share_parameters_op();
}

bool begins_exchange(const OpDef& op) {
  return &op == &all_reduce_begin_op() || &op == &reduce_gradients_op();
}

bool waits_for_exchange(const OpDef& op) { return &op == &all_reduce_wait_op(); }

bool may_run_on_host(const OpDef& op) { return is_exchange(op) || &op == &norm_of_squares_op(); }

}  // namespace gradloom
