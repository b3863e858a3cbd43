#include "engine/onnx/repair/computed_weights.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

namespace gradloom {

namespace {

std::string quoted(const std::string& name) { return "'" + name + "'"; }

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 3; ++i) text += (i ? ", " : "") + quoted(names[i]);
  return text + (names.size() > 3 ? ", ..." : "");
}

// Bits of the numbers that are not 0, which many parameters hold; sorted.
Result<std::vector<std::uint64_t>> numbers_of(const Tensor& tensor) {
  std::vector<std::uint64_t> numbers;
  const std::size_t size = dtype_bytes(tensor.dtype());
  TRY(tensor.visit([&](const std::byte* piece, std::size_t, std::size_t bytes) -> Result<bool> {
    for (std::size_t at = 0; at < bytes; at += size) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, piece + at, size);
      if (bits != 0) numbers.push_back(bits);
    }
    return true;
  }));
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

bool are_equal(const std::vector<std::uint64_t>& sorted) {
  return sorted.empty() || sorted.front() == sorted.back();
}

// More than a few numbers that are equal by chance. Both sorted.
bool share_numbers(const std::vector<std::uint64_t>& x, const std::vector<std::uint64_t>& y) {
  if (are_equal(x) || are_equal(y)) return false;
  std::vector<std::uint64_t> both;
  std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
  return both.size() * 20 > std::min(x.size(), y.size());
}

// All 0, or a good part of the sorted numbers is there more than once.
bool repeats(const std::vector<std::uint64_t>& numbers) {
  std::size_t again = 0;
  for (std::size_t i = 1; i < numbers.size(); ++i) again += numbers[i] == numbers[i - 1] ? 1 : 0;
  return numbers.empty() || again * 20 > numbers.size();
}

bool have_common(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](const std::string& name) { return std::find(b.begin(), b.end(), name) != b.end(); });
}

}  // namespace

Result<std::string> why_apart(const std::vector<ComputedInGraph>& computed, std::size_t i,
                              const std::function<bool(const std::string&)>& remains) {
  const ComputedParameter& p = computed[i].parameter;
  if (p.recurrent) return std::string();
  const auto remaining = std::find_if(p.from.begin(), p.from.end(), remains);
  if (remaining != p.from.end())
    return "was computed from " + quoted(*remaining) + ", which the file has too";
  const Tensor& own = computed[i].contents;
  std::optional<std::vector<std::uint64_t>> numbers;  // read once, where anything asks for them
  const auto own_numbers = [&]() -> Result<const std::vector<std::uint64_t>*> {
    if (!numbers) numbers = TRY(numbers_of(own));
    return &*numbers;
  };
  if (p.repeated && (!own.defined() || repeats(*TRY(own_numbers()))))
    return "holds numbers of " + listed(p.from) + " several times";
  if (p.from.size() > 1 && !p.rearranged) return "was computed from " + listed(p.from) + " together";
  if (p.named && !p.rearranged && !p.copied) return "is another form of " + listed(p.from);
  for (std::size_t k = 0; k < computed.size(); ++k) {
    const Tensor& other = computed[k].contents;
    if (k == i || !have_common(p.from, computed[k].parameter.from) || !own.defined() || !other.defined() ||
        own.dtype() != other.dtype())
      continue;
    if (share_numbers(*TRY(own_numbers()), TRY(numbers_of(other))))
      return "shares numbers of " + listed(p.from) + " with " + quoted(computed[k].parameter.name);
  }
  return std::string();
}

}  // namespace gradloom
