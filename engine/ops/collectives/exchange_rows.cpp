#include "engine/ops/collectives/exchange_rows.h"

#include <algorithm>
#include <array>

#include "engine/ops/collectives/adasum.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/collectives/share_parameters.h"

namespace gradloom {

std::span<const OpDef* const> exchange_rows() {
  static const std::array rows = {&all_reduce_op(),       &all_reduce_sum_op(),   &all_reduce_adasum_op(),
                                  &all_reduce_begin_op(), &all_reduce_wait_op(),  &reduce_gradients_op(),
                                  &share_parameters_op(), &gather_parameters_op()};
  return rows;
}

bool stands_still(const OpDef& op) { return op.exchange != RankExchange::none && !op.begins_exchange(); }

bool stands_still(std::string_view op) {
  const auto rows = exchange_rows();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const OpDef* r) { return op == r->name; });
  return row != rows.end() && stands_still(**row);
}

}  // namespace gradloom
