// Arithmetic on dimensions, which may be symbolic. Inference computes shapes with it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/ir/op.h"

namespace gradloom {

// A dimension computed from symbolic ones is named by its formula: a negative number far below those of
// Graph::symbols that is a hash of the text. The same formula gives the same dimension, so inference is
// repeatable without a table.
constexpr std::int64_t kFirstDerivedDim = -(std::int64_t{1} << 40);
std::int64_t derived_dim(std::string_view formula);
// Dimension `index` of something whose size is in the contents of input `input`, unknown before running.
std::int64_t unknown_dim(const InferContext& ctx, std::size_t input, std::int64_t index);
Result<std::int64_t> add_dims(const std::vector<std::int64_t>& dims);  // error on overflow
Result<std::int64_t> multiply_dims(const std::vector<std::int64_t>& dims);
// total / part, both products of dims; error when it is known not to divide.
Result<std::int64_t> divide_dims(const std::vector<std::int64_t>& total,
                                 const std::vector<std::int64_t>& part);

std::int64_t as_dim(std::size_t n);
// Product of dims [from, to); REQUIRES them static.
std::int64_t dim_product(const Shape& shape, std::size_t from, std::size_t to);
bool all_static(const Shape& shape, std::size_t from, std::size_t to);
// Two dims that cannot be equal. Symbolic dims match everything: binding decides later.
bool dims_differ(std::int64_t a, std::int64_t b);
// The better known of two dims that must be equal.
std::int64_t known_dim(std::int64_t a, std::int64_t b);

}  // namespace gradloom
