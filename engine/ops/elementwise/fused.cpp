// FusedElementwise: straight-line elementwise code as one node, made by pass fuse-elementwise.
// Every input broadcasts to the region's shape; every output has that shape. Attribute `code`: see the
// header; attribute `outputs`: the statement behind each output.
#include "engine/ops/elementwise/fused.h"

#include <algorithm>
#include <charconv>

#include "engine/ops/gradient_rules.h"
#include "engine/ops/samples.h"
#include "engine/ops/elementwise/formulas.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::EwOp;
using kernels::EwRow;

// To compute with.
bool is_number(DType t) { return t != DType::boolean && !is_small(t); }

Error type_error(const EwRow& row, const std::vector<DType>& operands) {
  std::string text = std::string(row.name) + " does not take (";
  for (std::size_t i = 0; i < operands.size(); ++i)
    text += (i ? ", " : "") + std::string(dtype_name(operands[i]));
  return infer_error(text + ")");
}

// Reads the text form. Positions are kept in `at`; every message names the statement.
class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  Result<std::vector<FusedStatement>> parse() {
    std::vector<FusedStatement> code;
    while (at_ < text_.size()) {
      const std::size_t number = code.size();
      auto statement = parse_statement(number);
      if (!statement)
        return with_context(statement.error(), "fused code, statement " + std::to_string(number));
      code.push_back(std::move(*statement));
      if (at_ < text_.size() && (!take(';') || at_ == text_.size()))
        return infer_error("fused code: expected ';' and a statement at " + std::to_string(at_));
    }
    if (code.empty()) return infer_error("fused code is empty");
    return code;
  }

 private:
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::string word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

  template <class T>
  Result<T> number() {
    T value{};
    const auto [end, failure] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (failure != std::errc{}) return infer_error("expected a number at " + std::to_string(at_));
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  Result<FusedOperand> operand(std::size_t defined) {
    FusedOperand o;
    o.is_input = at_ < text_.size() && text_[at_] == 'i';
    if (!o.is_input && (at_ >= text_.size() || text_[at_] != 't'))
      return infer_error("expected iN or tN at " + std::to_string(at_));
    ++at_;
    o.index = TRY(number<int>());
    if (o.index < 0 || (!o.is_input && static_cast<std::size_t>(o.index) >= defined))
      return infer_error("operand " + std::to_string(o.index) + " is not defined yet");
    return o;
  }

  Result<FusedStatement> parse_statement(std::size_t number_expected) {
    if (!take('t') || TRY(number<std::size_t>()) != number_expected || !take('='))
      return infer_error("expected 't" + std::to_string(number_expected) + "='");
    const std::string name = word();
    const EwRow* const row = kernels::find_ew_row(name);
    if (row == nullptr) return infer_error("unknown elementwise operator '" + name + "'");
    FusedStatement s;
    s.op = row->op;
    if (s.op == EwOp::Cast) {
      if (!take(':')) return infer_error("Cast without a type");
      const auto type = dtype_from_name(word());
      if (!type) return infer_error(type.error().message);
      s.cast_to = *type;
      if (take('#')) s.key = TRY(number<std::uint64_t>());
    }
    if (kernels::ew_draws(s.op)) {
      if (!take('#')) return infer_error(name + " without a key");
      s.key = TRY(number<std::uint64_t>());
    }
    if (!take('(')) return infer_error("expected '('");
    for (int i = 0; i < row->arity; ++i) {
      if (i > 0 && !take(',')) return infer_error("expected ','");
      s.operands.push_back(TRY(operand(number_expected)));
    }
    if (!take(')')) return infer_error("expected ')'");
    return s;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

Status infer_fused(InferContext& ctx) {
  const auto code = TRY(parse_fused(ctx.attrs.text("code")));
  const auto outputs = ctx.attrs.integers("outputs");
  if (outputs.size() < ctx.outputs.size()) return infer_error("attribute outputs names too few statements");
  for (const FusedStatement& s : code)
    if (kernels::ew_reduces(s.op))
      return infer_error(std::string(ew_name(s.op)) + " in a region without rows");
  const std::vector<DType> result = TRY(statement_types(ctx, code));
  const Shape shape = TRY(broadcast_inputs(ctx));
  for (std::size_t i = 0; i < ctx.outputs.size(); ++i) {
    if (outputs[i] < 0 || outputs[i] >= static_cast<std::int64_t>(code.size()))
      return infer_error("attribute outputs names statement " + std::to_string(outputs[i]) +
                         ", which does not exist");
    ctx.outputs[i] = {result[static_cast<std::size_t>(outputs[i])], shape};
  }
  return {};
}

Result<Kernel> prepare_fused(const NodeTypes& types) {
  return prepare_elementwise(TRY(parse_fused(types.attrs.text("code"))), types.attrs.integers("outputs"),
                             types);
}

Cost fused_cost(const NodeTypes& types) {
  Cost cost = default_cost(types);
  const auto code = parse_fused(types.attrs.text("code"));
  if (code && !types.outputs.empty())
    cost.flops =
        static_cast<double>(code->size()) * static_cast<double>(element_count(types.outputs[0].shape));
  return cost;
}

std::vector<Sample> fused_samples() {
  Sample chain{.name = "bias, gelu, two outputs",
               .attrs = {{"code", std::string("t0=Add(i0,i1);t1=Gelu(t0)")},
                         {"outputs", std::vector<std::int64_t>{0, 1}}},
               .inputs = {floats({5, 7}), floats({7})},
               .output_count = 2};
  Sample masked{
      .name = "scale, mask, cast",
      .attrs = {{"code", std::string("t0=Mul(i0,i1);t1=Where(i2,t0,i3);t2=Greater(t1,i3);t3=Cast:i32(t2)")},
                {"outputs", std::vector<std::int64_t>{1, 3}}},
      .inputs = {floats({2, 3, 5}), known_scalar(DType::f32, 0.125), bools({3, 5}),
                 known_scalar(DType::f32, 0)},
      .output_count = 2};
  Sample dropout{.name = "dropout and residual",
                 .attrs = {{"code", std::string("t0=Dropout#81985529216486895(i0,i1,i2);t1=Add(t0,i3)")},
                           {"outputs", std::vector<std::int64_t>{1}}},
                 .inputs = {floats({4, 33}), known_scalar(DType::f32, 0.25), known_scalar(DType::boolean, 1),
                            floats({4, 33})}};
  Sample broadcast{
      .name = "outer product",
      .attrs = {{"code", std::string("t0=Mul(i0,i1)")}, {"outputs", std::vector<std::int64_t>{0}}},
      .inputs = {floats({3, 1}), floats({1, 5})}};
  return {chain, masked, dropout, broadcast};
}

}  // namespace

const char* ew_name(EwOp op) { return kernels::ew_row(op).name; }
int ew_arity(EwOp op) { return kernels::ew_row(op).arity; }

Result<DType> ew_result_type(EwOp op, const std::vector<DType>& operands, DType cast_to) {
  const EwRow& row = kernels::ew_row(op);
  if (static_cast<int>(operands.size()) != row.arity) return type_error(row, operands);
  const DType first = operands[0];
  const bool same = std::all_of(operands.begin(), operands.end(), [&](DType t) { return t == first; });
  switch (row.types) {
    case 'F':
      if (same && is_float(first)) return first;
      break;
    case 'N':
      if (same && is_number(first)) return first;
      break;
    case 'C':
      if (same && (is_number(first) || (op == EwOp::Equal && first == DType::boolean))) return DType::boolean;
      break;
    case 'B':
      if (same && first == DType::boolean) return DType::boolean;
      break;
    case 'I':
      if (same && is_number(first) && !is_float(first)) return first;
      break;
    case 'P':
      if (is_float(first) || is_small_float(first)) return DType::boolean;
      break;
    case 'S':
      if (first == DType::boolean && operands[1] == operands[2]) return operands[1];
      break;
    default:
      if (op == EwOp::Cast) return cast_to;
      if (op == EwOp::Dropout && is_float(first) && is_float(operands[1]) && operands[2] == DType::boolean)
        return first;
      if (op == EwOp::Uniform && same && is_float(first)) return first;
      if (op == EwOp::DropoutMask && is_float(first) && operands[1] == DType::boolean) return DType::boolean;
      if (kernels::ew_reduces(op) && is_float(first)) return first;
  }
  return type_error(row, operands);
}

Result<std::vector<DType>> statement_types(const InferContext& ctx, const std::vector<FusedStatement>& code) {
  std::vector<DType> result;
  for (const FusedStatement& s : code) {
    std::vector<DType> operands;
    for (const FusedOperand& o : s.operands) {
      if (o.is_input && !ctx.has(static_cast<std::size_t>(o.index)))
        return infer_error("the code reads input " + std::to_string(o.index) + ", which is missing");
      operands.push_back(o.is_input ? ctx.dtype(static_cast<std::size_t>(o.index))
                                    : result[static_cast<std::size_t>(o.index)]);
    }
    result.push_back(TRY(ew_result_type(s.op, operands, s.cast_to)));
  }
  return result;
}

std::string print_fused(const std::vector<FusedStatement>& code) {
  std::string text;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const FusedStatement& s = code[i];
    text += (i ? ";t" : "t") + std::to_string(i) + "=" + ew_name(s.op);
    if (s.op == EwOp::Cast) text += ":" + std::string(dtype_name(s.cast_to));
    if (kernels::ew_draws(s.op) || s.key != 0) text += "#" + std::to_string(s.key);
    for (std::size_t o = 0; o < s.operands.size(); ++o)
      text += (o ? "," : "(") + std::string(s.operands[o].is_input ? "i" : "t") +
              std::to_string(s.operands[o].index);
    text += ")";
  }
  return text;
}

Result<std::vector<FusedStatement>> parse_fused(const std::string& text) { return Parser(text).parse(); }

const OpDef fused_elementwise_op = {.name = "FusedElementwise",
                                    .domain = "gradloom",
                                    .summary = "A region of elementwise operators as one kernel",
                                    .traits = kRandom | kPointwise,
                                    .min_inputs = 1,
                                    .max_inputs = kernels::kEwMaxRegisters,
                                    .max_outputs = kernels::kEwMaxOutputs,
                                    .infer = infer_fused,
                                    .cost = fused_cost,
                                    .cpu = prepare_fused,
                                    .gpu = prepare_fused,
                                    .samples = fused_samples};

}  // namespace gradloom
