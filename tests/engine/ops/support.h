// Short forms for tests of operator rows.
#pragma once

#include <gtest/gtest.h>

#include <variant>

#include "engine/autodiff/autodiff.h"
#include "engine/ir/builder.h"
#include "engine/ir/op.h"
#include "tests/engine/reference.h"

namespace gradloom {

// An input of a node under test: a type whose contents are unknown, a tensor that is
// known before running, or none.
using Given = std::variant<std::monostate, Type, Tensor>;
using List = std::vector<std::int64_t>;

inline std::vector<ValueId> add_inputs(GraphBuilder& b, const std::vector<Given>& given) {
  std::vector<ValueId> inputs;
  for (const Given& g : given) {
    const std::string name = "x" + std::to_string(inputs.size());
    if (const auto* type = std::get_if<Type>(&g))
      inputs.push_back(b.input(name, *type));
    else if (const auto* tensor = std::get_if<Tensor>(&g))
      inputs.push_back(b.constant(*tensor, name));
    else
      inputs.push_back(kNone);
  }
  return inputs;
}

inline Result<std::vector<Type>> infer(const char* name, const std::vector<Given>& given,
                                       const Attrs& attrs = {}, int outputs = 1) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<Type> types;
  for (ValueId id : TRY(b.add(op_by_name(name), add_inputs(b, given), attrs, outputs)))
    types.push_back(graph.type(id));
  return types;
}

inline Shape shape_of(const Result<std::vector<Type>>& types) {
  return types.ok() ? (*types)[0].shape : Shape{-999};
}

inline Type f32(Shape shape) { return {DType::f32, std::move(shape)}; }
inline Type i64(Shape shape) { return {DType::i64, std::move(shape)}; }
inline Tensor ints(const List& values) { return Tensor::from_i64(values); }
inline Tensor scalar(std::int64_t value) { return Tensor::from_i64({value}).reshaped({}); }
inline Tensor tensor(Shape shape, const std::vector<double>& values, DType dtype = DType::f64) {
  return Tensor::from_f64(dtype, std::move(shape), values);
}

// Contents of output 0; empty after an error.
inline std::vector<double> run(const char* name, const std::vector<Tensor>& inputs, const Attrs& attrs = {},
                               int outputs = 1) {
  auto result = evaluate(op_by_name(name), attrs, inputs, outputs);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? (*result)[0].to_f64() : std::vector<double>{};
}

// The same of inputs that are not known before running.
inline std::vector<double> run_unknown(const char* name, const std::vector<Tensor>& inputs,
                                       const Attrs& attrs = {}) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<ValueId> ids;
  reference::Feeds feeds;
  for (const Tensor& t : inputs) {
    ids.push_back(b.input("x" + std::to_string(ids.size()), t.type()));
    feeds[ids.back()] = t;
  }
  const ValueId y = b.op(op_by_name(name), ids, attrs);
  auto runner = reference::Runner::create(graph);
  EXPECT_TRUE(runner.ok());
  auto values = runner->run(feeds);
  EXPECT_TRUE(values.ok());
  return values.ok() ? (*values)[y].to_f64() : std::vector<double>{};
}

inline std::string error_of(const char* name, const std::vector<Given>& given, const Attrs& attrs = {},
                            int outputs = 1) {
  const auto result = infer(name, given, attrs, outputs);
  if (result.ok()) return "no error: " + to_string((*result)[0]);
  EXPECT_EQ(result.error().code, Errc::bad_input) << result.error().message;
  return result.error().message;
}

inline ::testing::AssertionResult mentions(const std::string& message, const std::string& part) {
  if (message.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << message << "' does not mention '" << part << "'";
}

// d sum(op(inputs)) / d input i; inputs are f64 and not known before running.
inline std::vector<double> gradient(const char* name, const std::vector<Tensor>& inputs, std::size_t wrt,
                                    const Attrs& attrs = {}) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<ValueId> ids;
  reference::Feeds feeds;
  for (const Tensor& t : inputs) {
    ids.push_back(b.input("x" + std::to_string(ids.size()), t.type()));
    feeds[ids.back()] = t;
  }
  const ValueId y = b.op(op_by_name(name), ids, attrs);
  const ValueId loss = b.op("ReduceSum", {y}, {{"keepdims", std::int64_t{0}}});
  auto grads = add_gradients(graph, loss, {ids[wrt]});
  EXPECT_TRUE(grads.ok()) << (grads.ok() ? "" : grads.error().message);
  if (!grads.ok() || grads->at(ids[wrt]) == kNone) return {};
  auto runner = reference::Runner::create(graph);
  EXPECT_TRUE(runner.ok());
  auto values = runner->run(feeds);
  EXPECT_TRUE(values.ok());
  return (*values)[grads->at(ids[wrt])].to_f64();
}

}  // namespace gradloom
