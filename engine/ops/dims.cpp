#include "engine/ops/dims.h"

#include <algorithm>
#include <string>

#include "engine/base/hash.h"

namespace gradloom {
namespace {

// A product of dims: the static factor and the symbolic ones.
struct Product {
  std::int64_t factor = 1;
  std::vector<std::int64_t> symbols;  // sorted
};

Result<Product> product_of(const std::vector<std::int64_t>& dims) {
  Product p;
  for (std::int64_t d : dims) {
    if (d < 0) {
      p.symbols.push_back(d);
    } else if (__builtin_mul_overflow(p.factor, d, &p.factor)) {
      return infer_error("a product of dimensions does not fit in 63 bits");
    }
  }
  std::sort(p.symbols.begin(), p.symbols.end());
  return p;
}

std::string product_text(const Product& p) {
  std::string text = std::to_string(p.factor);
  for (std::int64_t s : p.symbols) text += "*" + std::to_string(s);
  return text;
}

std::int64_t dim_from(const Product& p) {
  if (p.symbols.empty() || p.factor == 0) return p.factor;
  if (p.symbols.size() == 1 && p.factor == 1) return p.symbols[0];
  return derived_dim(product_text(p));
}

}  // namespace

std::int64_t derived_dim(std::string_view formula) {
  return kFirstDerivedDim - static_cast<std::int64_t>(fnv1a64(formula) >> 24);
}

std::int64_t unknown_dim(const InferContext& ctx, std::size_t input, std::int64_t index) {
  return derived_dim("contents " + std::to_string(ctx.inputs[input]) + "[" + std::to_string(index) + "]");
}

Result<std::int64_t> add_dims(const std::vector<std::int64_t>& dims) {
  std::int64_t sum = 0;
  std::vector<std::int64_t> symbols;
  for (std::int64_t d : dims) {
    if (d < 0) {
      symbols.push_back(d);
    } else if (__builtin_add_overflow(sum, d, &sum)) {
      return infer_error("a sum of dimensions does not fit in 63 bits");
    }
  }
  if (symbols.empty()) return sum;
  if (symbols.size() == 1 && sum == 0) return symbols[0];
  std::sort(symbols.begin(), symbols.end());
  std::string text = std::to_string(sum);
  for (std::int64_t s : symbols) text += "+" + std::to_string(s);
  return derived_dim(text);
}

Result<std::int64_t> multiply_dims(const std::vector<std::int64_t>& dims) {
  return dim_from(TRY(product_of(dims)));
}

Result<std::int64_t> divide_dims(const std::vector<std::int64_t>& total,
                                 const std::vector<std::int64_t>& part) {
  Product a = TRY(product_of(total)), b = TRY(product_of(part));
  for (auto it = b.symbols.begin(); it != b.symbols.end();) {
    const auto same = std::find(a.symbols.begin(), a.symbols.end(), *it);
    if (same == a.symbols.end()) {
      ++it;
    } else {
      a.symbols.erase(same);
      it = b.symbols.erase(it);
    }
  }
  if (b.factor == 0 && b.symbols.empty()) return infer_error("-1 cannot be computed: another dimension is 0");
  if (b.symbols.empty() && a.factor % b.factor == 0) return dim_from(Product{a.factor / b.factor, a.symbols});
  if (b.symbols.empty() && a.symbols.empty())
    return infer_error(std::to_string(a.factor) + " elements do not divide into parts of " +
                       std::to_string(b.factor));
  return derived_dim(product_text(a) + "/" + product_text(b));
}

std::int64_t as_dim(std::size_t n) { return static_cast<std::int64_t>(n); }

std::int64_t dim_product(const Shape& shape, std::size_t from, std::size_t to) {
  std::int64_t count = 1;
  for (std::size_t i = from; i < to; ++i) {
    CHECK(shape[i] >= 0, "product of a symbolic dim");
    count *= shape[i];
  }
  return count;
}

bool all_static(const Shape& shape, std::size_t from, std::size_t to) {
  for (std::size_t i = from; i < to; ++i)
    if (shape[i] < 0) return false;
  return true;
}

bool dims_differ(std::int64_t a, std::int64_t b) { return a >= 0 && b >= 0 && a != b; }

std::int64_t known_dim(std::int64_t a, std::int64_t b) {
  if (a >= 0) return a;
  if (b >= 0) return b;
  return std::max(a, b);  // a named symbol rather than a formula
}

}  // namespace gradloom
