// O9: graphs in graphs, types in types, functions that call functions.
#include "tests/hostile/build.h"

namespace gradloom::hostile {

namespace {

using Cases = std::vector<Case>;

constexpr int kBad = 3, kLimit = 4;

// A node whose attribute is a graph with such a node, and so on.
std::string nested_graphs(std::size_t levels) {
  std::string graph;
  for (std::size_t i = 1; i < levels; ++i)
    graph =
        field(1, field(4, "If") + field(5, field(1, "then_branch") + field(6, graph) + number_field(20, 5)));
  return model_of(graph);
}

std::string nested_types(std::size_t levels) {
  std::string type = field(1, number_field(1, 1));
  for (std::size_t i = 0; i < levels; ++i) type = field(4, field(1, type));
  return model_of(field(11, field(1, "x") + field(2, type)));
}

onnx::FunctionProto* add_function(ModelProto& model, const std::string& name) {
  if (model.functions_size() == 0) {
    auto* own = model.add_opset_import();
    own->set_domain("f");
    own->set_version(1);
  }
  auto* function = model.add_functions();
  function->set_name(name);
  function->set_domain("f");
  function->add_input("a");
  function->add_output("b");
  auto* opset = function->add_opset_import();
  opset->set_domain("");
  opset->set_version(17);
  opset = function->add_opset_import();
  opset->set_domain("f");
  opset->set_version(1);
  return function;
}

void call(onnx::FunctionProto* function, const std::string& callee, const std::string& input,
          const std::string& output) {
  auto* node = function->add_node();
  node->set_op_type(callee);
  if (callee[0] == 'f') node->set_domain("f");
  node->add_input(input);
  node->add_output(output);
}

// f0 calls f1 `width` times, one after the other, f1 calls f2 ..., the last does `bottom`.
ModelProto call_tree(int depth, int width, const std::string& bottom) {
  ModelProto model = parsed("g (float[2] x) => (float y) { h = Neg(x) y = ReduceSum<keepdims = 0>(h) }");
  NodeProto* first = model.mutable_graph()->mutable_node(0);
  for (int i = 0; i < depth; ++i) {
    auto* function = add_function(model, "f" + std::to_string(i));
    const std::string callee = i + 1 < depth ? "f" + std::to_string(i + 1) : bottom;
    for (int k = 0; k < width; ++k)
      call(function, callee, k == 0 ? "a" : "t" + std::to_string(k),
           k + 1 == width ? "b" : "t" + std::to_string(k + 1));
  }
  first->set_op_type("f0");
  first->set_domain("f");
  return model;
}

// Row O9: messages in messages.
void nested_graphs_and_types(Cases& cases) {
  const auto add = [&](const std::string& name, const std::function<void(const Place&)>& make,
                       std::vector<Command> runs) {
    cases.push_back({"O9", name, make, std::move(runs)});
  };
  add("33 graphs", file(nested_graphs(33)), refused(kLimit, "nesting is over the limit of 32"));
  add("34 graphs", file(nested_graphs(34)), refused(kLimit, "nesting"));
  add("1000 graphs", file(nested_graphs(1000)), refused(kLimit, "nesting"));
  add("32 graphs", file(nested_graphs(32)), refused(kBad, ""));
  add("500 types", file(nested_types(500)), refused(kLimit, "nesting"));
  // Each level adds some bytes to every length around it: 10^5 of them by one buffer written from
  // its end.
  add(
      "100000 graphs",
      [](const Place& place) {
        std::string reversed;  // lengths first, back to front
        const auto prepend = [&](const std::string& bytes) { reversed.append(bytes.rbegin(), bytes.rend()); };
        for (int i = 0; i < 100000; ++i) {
          for (const std::uint64_t number : {6, 5, 1})
            prepend(varint(number << 3 | 2) + varint(reversed.size()));
        }
        std::string graph(reversed.rbegin(), reversed.rend());
        place.write("model.onnx", model_of(graph));
      },
      refused(kLimit, "nesting"));
}

// Row O9: functions that call functions.
void functions_in_functions(Cases& cases) {
  const auto add = [&](const std::string& name, const std::function<void(const Place&)>& make,
                       std::vector<Command> runs) {
    cases.push_back({"O9", name, make, std::move(runs)});
  };
  ModelProto self = call_tree(1, 1, "f0");
  add("function calls itself", file(self), refused(kBad, "recursive"));
  ModelProto pair = call_tree(2, 1, "f0");
  add("two functions call each other", file(pair), refused(kBad, "recursive"));
  add("chain of 33 functions", file(call_tree(33, 1, "Neg")), refused(kLimit, "nesting"));
  add("chain of 10000 functions", file(call_tree(10000, 1, "Neg")), refused(kLimit, "nesting"));
  add("2^30 calls", file(call_tree(30, 2, "Neg")), refused(kLimit, "after inlining"));
  add("100^30 calls", file(call_tree(30, 100, "Neg")), refused(kLimit, "after inlining"));
  add("2^30 empty calls", file([] {
        ModelProto model = call_tree(30, 2, "Neg");
        auto* last = model.mutable_functions(29);
        last->clear_node();
        last->set_output(0, "a");
        return model;
      }()),
      refused(kLimit, ""));
  add("2^19 calls of a big body", file(call_tree(20, 2, "Neg")), refused(kLimit, "after inlining"));
  add("recursion through a subgraph", file([] {
        ModelProto model = call_tree(1, 1, "Neg");
        auto* function = model.mutable_functions(0);
        auto* attribute = function->mutable_node(0)->add_attribute();
        attribute->set_name("then_branch");
        attribute->set_type(AttributeProto::GRAPH);
        add_node(*attribute->mutable_g(), "f0", {"a"}, {"z"})->set_domain("f");
        return model;
      }()),
      refused(kBad, "recursive"));
}

// Row O9: bodies that grow by being called.
void large_functions(Cases& cases) {
  const auto add = [&](const std::string& name, const std::function<void(const Place&)>& make,
                       std::vector<Command> runs) {
    cases.push_back({"O9", name, make, std::move(runs)});
  };
  // A constant of a megabyte in a body that is called a thousand times.
  add("constants of a gigabyte", file([] {
        ModelProto model = call_tree(3, 32, "Neg");
        auto* constant = model.mutable_functions(2)->add_node();
        constant->set_op_type("Constant");
        constant->add_output("c");
        model.mutable_functions(2)->mutable_node()->SwapElements(0, 32);
        constant = model.mutable_functions(2)->mutable_node(0);
        auto* value = constant->add_attribute();
        value->set_name("value");
        value->set_type(AttributeProto::TENSOR);
        value->mutable_t()->set_data_type(TensorProto::FLOAT);
        value->mutable_t()->add_dims(1 << 18);
        value->mutable_t()->set_raw_data(std::string(1 << 20, 'c'));
        return model;
      }()),
      refused(kLimit, "after inlining"));
  // Names grow with every level of calls.
  add("names that grow", file([] {
        ModelProto model = call_tree(20, 1, "Neg");
        model.mutable_graph()->mutable_node(0)->set_name(std::string(4000, 'n'));
        for (auto& function : *model.mutable_functions())
          function.mutable_node(0)->set_name(std::string(4000, 'm'));
        return model;
      }()),
      refused(kLimit, "names are over the limit of 4096"));
  add("function of 100000 opsets", file([] {
        ModelProto model = call_tree(1, 1, "Neg");
        auto* function = model.mutable_functions(0);
        for (int i = 0; i < 100000; ++i) {
          function->add_opset_import()->set_domain("d" + std::to_string(i));
          auto* own = model.add_opset_import();
          own->set_domain("d" + std::to_string(i));
          own->set_version(2);
          if (i < 90000) call(function, "Neg", "a", "q" + std::to_string(i));
        }
        return model;
      }()),
      {inspect(0, "")});
}

}  // namespace

std::vector<Case> nesting_cases() {
  Cases cases;
  nested_graphs_and_types(cases);
  functions_in_functions(cases);
  large_functions(cases);
  return cases;
}

}  // namespace gradloom::hostile
