// O12 to O14, O16, O17: names, attributes, what the program does not know, files of two meanings,
// unusual numbers.
#include <cmath>

#include "tests/hostile/build.h"

namespace gradloom::hostile {

namespace {

using Cases = std::vector<Case>;

constexpr int kUsage = 2, kBad = 3, kLimit = 4, kIo = 5, kNumeric = 7;

// Row O12: names that would do something to a terminal, a table or a web page.
struct Name {
  const char* what;
  std::string name, shown;
};

std::vector<Name> biting_names() {
  return {
      {"escape sequence", "\x1b[31mred\x1b[0m\x1b]0;owned\x07", "\\x1b[31mred"},
      {"not UTF-8", "\xff\xfe\xc0\x80", "\\xff\\xfe\\xc0\\x80"},
      {"cut UTF-8", "a\xe2\x82", "a\\xe2\\x82"},
      {"surrogate", "\xed\xa0\x80", "\\xed\\xa0\\x80"},
      {"right to left",
       "abc\xe2\x80\xae"
       "fdp.exe",
       "\\xe2\\x80\\xae"},
      {"isolate", "\xe2\x81\xa6x", "\\xe2\\x81\\xa6"},
      {"C1 control",
       "\xc2\x9b"
       "31m",
       "\\xc2\\x9b"},
      {"line break", "a\nnote: all is well\rgradloom: fine", "a\\x0anote"},
      {"NUL", std::string("a\0b", 3), "a\\x00b"},
      {"delete and backspace", "a\b\b\x7f", "\\x08\\x08\\x7f"},
      {"script", "<script>alert(1)</script>", "<script>"},
      {"formula", "=cmd|'/C calc'!A0", "=cmd"},
      {"format", "%s%n%x{}{0}", "%s%n"},
      {"SQL", "'); DROP TABLE runs; --", "DROP TABLE"},
      {"path", "../../../../tmp/x", "../../"},
      {"option", "--help", "--help"},
  };
}

void name_everywhere(Cases& cases, const Name& n) {
  const ModelProto everywhere = changed(plain(), [&](ModelProto& m, GraphProto& g) {
    m.set_producer_name(n.name);
    m.set_doc_string(n.name);
    g.set_name(n.name);
    g.mutable_input(0)->set_name(n.name);
    g.mutable_node(0)->set_input(0, n.name);
    g.mutable_node(0)->set_name(n.name);
    g.mutable_node(0)->set_doc_string(n.name);
    g.mutable_initializer(0)->set_name(n.name + "w");
    g.mutable_node(0)->set_input(1, n.name + "w");
  });
  cases.push_back({"O12",
                   std::string(n.what) + " everywhere",
                   file(everywhere),
                   {inspect(0, n.shown),
                    {{"inspect", "model.onnx", "--json"}, 0, ""},
                    {{"plan", "model.onnx", "--log"}, 0, ""},
                    train(0, "", {"--session", "s.db", "--profile", "all"}),
                    {{"show", "s.db"}, 0, ""},
                    {{"show", "s.db", "--json"}, 0, ""},
                    {{"trace", "s.db", "-o", "t.json"}, 0, ""},
                    {{"trace", "s.db", "-o", "t.csv"}, 0, ""},
                    {{"export", "s.db", "-o", "r.json"}, 0, ""},
                    {{"plan", "--recipe", "r.json", "--json"}, 0, ""}}});
}

void name_in_one_place(Cases& cases, const Name& n) {
  const auto wrong = [&](const auto& change) { return file(changed(plain(), change)); };
  cases.push_back({"O12", std::string(n.what) + " as operator",
                   wrong([&](ModelProto&, GraphProto& g) { g.mutable_node(0)->set_op_type(n.name); }),
                   only_viewed(n.shown, kBad, "not supported")});
  cases.push_back({"O12", std::string(n.what) + " as domain",
                   wrong([&](ModelProto&, GraphProto& g) { g.mutable_node(0)->set_domain(n.name); }),
                   only_viewed(n.shown, kBad, "not supported")});
  cases.push_back({"O12", std::string(n.what) + " as missing value",
                   wrong([&](ModelProto&, GraphProto& g) { g.mutable_node(0)->set_input(0, n.name); }),
                   refused(kBad, n.shown)});
  cases.push_back({"O12",
                   std::string(n.what) + " as dimension",
                   wrong([&](ModelProto&, GraphProto& g) {
                     g.mutable_input(0)
                         ->mutable_type()
                         ->mutable_tensor_type()
                         ->mutable_shape()
                         ->mutable_dim(0)
                         ->set_dim_param(n.name);
                   }),
                   {inspect(0, n.shown), train(kUsage, n.shown)}});
  cases.push_back({"O12", std::string(n.what) + " as attribute", wrong([&](ModelProto&, GraphProto& g) {
                     add_attribute(g.mutable_node(0), n.name, AttributeProto::INT)->set_i(1);
                   }),
                   only_viewed(n.shown, kBad, "is not known")});
  cases.push_back({"O12", std::string(n.what) + " as file", wrong([&](ModelProto&, GraphProto& g) {
                     TensorProto* t = add_tensor(g, "t", TensorProto::FLOAT, {1});
                     t->set_data_location(TensorProto::EXTERNAL);
                     auto* entry = t->add_external_data();
                     entry->set_key("location");
                     entry->set_value(n.name);
                   }),
                   refused(n.what == std::string("path") || n.what == std::string("NUL") ||
                                   n.what == std::string("line break")
                               ? kBad
                               : kIo,
                           "initializer 't'")});
}

void names_that_bite(Cases& cases) {
  for (const Name& n : biting_names()) {
    name_everywhere(cases, n);
    name_in_one_place(cases, n);
  }
  cases.push_back(
      {"O12", "name of 1 MB",
       file(changed(plain(), [](ModelProto&,
                                GraphProto& g) { g.mutable_node(0)->set_name(std::string(1 << 20, 'n')); })),
       refused(kLimit, "a name of 1048576 bytes")});
  cases.push_back(
      {"O12",
       "name at the limit",
       file(changed(plain(),
                    [](ModelProto&, GraphProto& g) { g.mutable_node(0)->set_name(std::string(4096, 'n')); })),
       {inspect(0, ""), train(0, "")}});
  cases.push_back(
      {"O12", "name over the limit",
       file(changed(plain(),
                    [](ModelProto&, GraphProto& g) { g.mutable_node(0)->set_name(std::string(4097, 'n')); })),
       refused(kLimit, "over the limit of 4096")});
}

// Row O13: attributes that the operators do not have.
void wrong_attributes(Cases& cases) {
  const auto add = [&](const std::string& name, const std::string& node, const std::string& says) {
    cases.push_back(
        {"O13", name,
         file(parsed("g (float[2, 4] x, int64[2] i, bool[2] b) => (float[2, 4] y) { " + node + " }")),
         refused(kBad, says)});
  };
  const auto untyped = [&](const std::string& name, const std::string& node, const std::string& says) {
    add(name, node, says);
    cases.back().runs = only_viewed("could not be inferred", kBad, says);
  };
  add("float for an integer", "y = Softmax<axis = 1.5>(x)", "attribute 'axis' is FLOAT, it must be INT");
  add("integer for a list", "y = Transpose<perm = 1>(x)", "it must be INTS");
  add("string for a number", "y = LeakyRelu<alpha = \"0.1\">(x)", "it must be FLOAT");
  add("attribute missing", "y = Cast(x)", "attribute 'to' is missing");
  untyped("cast to an unknown type", "y = Cast<to = 99>(x)", "99");
  untyped("cast to a string", "y = Cast<to = 8>(x)", "element type string");
  untyped("wrong element types", "y = Add(x, i)", "Add");
  untyped("floats as indices", "y = Gather(x, x)", "Gather");
  untyped("integers as floats", "y = Sigmoid(i)", "Sigmoid");
  untyped("booleans added", "y = Add(b, b)", "Add");
  untyped("unknown mode", "y = Pad<mode = \"sideways\">(x, i)", "Pad");
  const auto with = [&](const std::string& name, const auto& change, const std::string& says) {
    ModelProto model = parsed("g (float[2, 4] x) => (float[2, 4] y) { y = Softmax<axis = 1>(x) }");
    change(*model.mutable_graph()->mutable_node(0));
    cases.push_back({"O13", name, file(model), refused(kBad, says)});
  };
  with(
      "attribute twice", [](NodeProto& n) { *n.add_attribute() = n.attribute(0); }, "given twice");
  with(
      "attribute without a name", [](NodeProto& n) { n.mutable_attribute(0)->set_name(""); }, "has no name");
  with(
      "attribute without a type", [](NodeProto& n) { n.mutable_attribute(0)->clear_type(); },
      "holds another type");
  with(
      "type and field differ", [](NodeProto& n) { n.mutable_attribute(0)->set_f(1); }, "holds another type");
  with(
      "reference outside a function", [](NodeProto& n) { n.mutable_attribute(0)->set_ref_attr_name("a"); },
      "outside a function");
  cases.push_back(
      {"O13", "attribute of an unknown enum",
       file(model_of(field(1, field(1, "x") + field(2, "y") + field(4, "Relu") +
                                  field(5, field(1, "a") + number_field(20, 77) + number_field(3, 1))) +
                     field(11, field(1, "x")) + field(12, field(1, "y")))),
       refused(kBad, "")});
}

// Row O13: operators of ours that files may have, with attributes, sizes and ends that they do not.
void wrong_groups(Cases& cases) {
  const auto grouped = [](const std::string& weights, const std::string& ends, const auto& change) {
    ModelProto model =
        parsed("g (float[6, 4] x) => (float y) <float[" + weights + "] w = {1}, int64[3] e = {" + ends +
               "}> { h = GroupedMatMul(x, w, e) y = ReduceMean<keepdims = 0>(h) }");
    TensorProto* const w = model.mutable_graph()->mutable_initializer(0);
    w->clear_float_data();
    std::int64_t count = 1;
    for (const std::int64_t dim : w->dims()) count *= dim;
    for (std::int64_t i = 0; i < count; ++i) w->add_float_data(0.5F);
    change(*model.mutable_graph()->mutable_node(0));
    return model;
  };
  const auto ours = [](NodeProto& n) { n.set_domain("gradloom"); };
  const auto add = [&](const std::string& name, const ModelProto& model, std::vector<Command> runs) {
    cases.push_back({"O13", name, file(model), std::move(runs)});
  };
  const auto attribute = [&](const std::string& name, const auto& set) {
    return grouped("3, 4, 5", "2, 4, 6", [&](NodeProto& n) {
      ours(n);
      set(*add_attribute(&n, name, AttributeProto::INT));
    });
  };
  const auto number = [](std::int64_t value) { return [value](AttributeProto& a) { a.set_i(value); }; };
  add("groups out of ONNX's domain", grouped("3, 4, 5", "2, 4, 6", [](NodeProto&) {}),
      only_viewed("GroupedMatMul", kBad, "GroupedMatMul"));
  add("groups, a flag that is a number", attribute("transposed", number(2)),
      only_viewed("transposed", kBad, "must be 0 or 1"));
  add("groups, an unknown attribute", attribute("turned", number(1)),
      only_viewed("turned", kBad, "not known"));
  add("groups, other ends than weights", grouped("2, 4, 5", "2, 4, 6", ours),
      only_viewed("2 groups", kBad, "ends of 3"));
  add("groups, weights of two dims", grouped("4, 5", "2, 4, 6", ours),
      only_viewed("2 and 3 dims", kBad, "2 and 3 dims"));
  add("groups, a fourth operand",
      grouped("3, 4, 5", "2, 4, 6",
              [&](NodeProto& n) {
                ours(n);
                n.add_input("x");
              }),
      refused(kBad, "takes at most 3"));
  for (const char* const ends : {"6, 2, -9000000000000000000", "0, 0, 9000000000000000000", "-1, -1, -1"})
    add(std::string("groups, ends ") + ends, grouped("3, 4, 5", ends, ours),
        {inspect(0, ""), train(0, "loss")});
}

// Row O13: what the file declares of inputs and outputs.
void wrong_declarations(Cases& cases) {
  const auto declared = [&](const std::string& name, const auto& change, std::vector<Command> runs) {
    ModelProto model = plain();
    change(*model.mutable_graph());
    cases.push_back({"O13", name, file(model), std::move(runs)});
  };
  declared(
      "output declared as integers",
      [](GraphProto& g) {
        g.mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(TensorProto::INT64);
      },
      refused(kBad, "is declared i64"));
  declared(
      "input of strings",
      [](GraphProto& g) {
        g.mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(TensorProto::STRING);
      },
      only_viewed("string", kBad, "string is not supported"));
  declared(
      "input of a sequence",
      [](GraphProto& g) { g.mutable_input(0)->mutable_type()->mutable_sequence_type(); },
      only_viewed("", kBad, "is not a tensor"));
  declared(
      "input of an unknown element type",
      [](GraphProto& g) { g.mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(77); },
      only_viewed("77", kBad, "77"));
}

// Row O14: what this program does not know.
void from_the_future(Cases& cases) {
  const auto with = [&](const std::string& name, const auto& change, std::vector<Command> runs) {
    cases.push_back({"O14", name, file(changed(plain(), change)), std::move(runs)});
  };
  with(
      "unknown operator", [](ModelProto&, GraphProto& g) { g.mutable_node(0)->set_op_type("Wobble"); },
      only_viewed("Wobble", kBad, "1 operator is not supported: Wobble (1 node: Wobble_0)"));
  with(
      "unknown domain", [](ModelProto&, GraphProto& g) { g.mutable_node(0)->set_domain("com.evil"); },
      only_viewed("com.evil.Mul", kBad, "com.evil.Mul"));
  with(
      "our own domain",
      [](ModelProto& m, GraphProto& g) {
        g.mutable_node(0)->set_domain("gradloom");
        m.add_opset_import()->set_domain("gradloom");
      },
      only_viewed("gradloom.Mul", kBad, "gradloom.Mul"));
  for (const auto& [name, version] : {std::pair<const char*, std::int64_t>{"opset 0", 0},
                                      {"opset 99", 99},
                                      {"opset -1", -1},
                                      {"opset 2^63 - 1", INT64_MAX},
                                      {"opset -2^63", INT64_MIN}})
    with(
        name,
        [version = version](ModelProto& m, GraphProto&) { m.mutable_opset_import(0)->set_version(version); },
        only_viewed("is not supported (1 to 28)", kBad, "is not supported (1 to 28)"));
  with(
      "no opset", [](ModelProto& m, GraphProto&) { m.clear_opset_import(); },
      only_viewed("does not say its opset", kBad, "does not say its opset"));
  with("IR version 99", [](ModelProto& m, GraphProto&) { m.set_ir_version(99); },
       {inspect(0, "IR version 99 is newer"), train(0, "")});
  with(
      "IR version -1", [](ModelProto& m, GraphProto&) { m.set_ir_version(-1); },
      refused(kBad, "IR version -1"));
  with(
      "no IR version", [](ModelProto& m, GraphProto&) { m.clear_ir_version(); },
      refused(kBad, "IR version 0"));
}

// Row O16: files that mean one thing to one reader and another to the next.
void polyglots(Cases& cases) {
  const std::string whole = plain().SerializeAsString();
  const auto add = [&](const std::string& name, const std::string& bytes, const std::string& says) {
    cases.push_back({"O16", name, file(bytes), refused(kBad, says)});
  };
  add("two graphs", whole + field(7, field(2, "other")), "field 7 of ModelProto occurs a second time");
  add("two models", whole + whole, "a second time");
  add("unknown field", whole + std::string("\x9a\x01\x00", 3), "field 19 at byte");
  add("unknown field of a node", model_of(field(1, field(1, "x") + field(30, "hidden"))), "field 30");
  add("two names of a node", model_of(field(1, field(3, "a") + field(3, "b"))), "a second time");
  add("two IR versions", number_field(1, 8) + whole, "a second time");
  add("number and name of a dimension",
      model_of(field(11, field(1, "x") +
                             field(2, field(1, number_field(1, 1) +
                                                   field(2, field(1, number_field(1, 2) + field(2, "n"))))))),
      "Dimension");
  add("tensor and sequence type",
      model_of(field(11, field(1, "x") + field(2, field(1, number_field(1, 1)) + field(4, "")))),
      "TypeProto");
  add("trailing zero", whole + std::string(1, '\0'), "field 0");
  add("zip behind the model", whole + std::string("PK\5\6", 4) + std::string(18, '\0'), "not an ONNX file");
}

// Row O17: numbers at the edges; they load, and training says when they spoil it.
void unusual_numbers(Cases& cases) {
  const auto weight = [](const std::string& bits) {
    return changed(plain(), [&](ModelProto&, GraphProto& g) {
      g.mutable_initializer(0)->clear_float_data();
      g.mutable_initializer(0)->set_raw_data(repeated(bits, 4));
    });
  };
  cases.push_back({"O17",
                   "NaN weights",
                   file(weight(std::string("\x01\x00\xc0\x7f", 4))),
                   {inspect(0, "holds NaN or infinite"), train(kNumeric, "")}});
  cases.push_back({"O17",
                   "infinite weights",
                   file(weight(std::string("\x00\x00\x80\x7f", 4))),
                   {inspect(0, "holds NaN or infinite"), train(kNumeric, "")}});
  cases.push_back({"O17",
                   "denormal weights",
                   file(weight(std::string("\x01\x00\x00\x00", 4))),
                   {inspect(0, ""), train(0, "")}});
  cases.push_back({"O17",
                   "no elements",
                   file(parsed("g (float[0, 4] x) => (float y) <float v = {1}> { h = Mul(x, v) y = "
                               "ReduceSum<keepdims = 0>(h) }")),
                   {inspect(0, ""), train(0, "")}});
  cases.push_back({"O17",
                   "mean of nothing",
                   file(parsed("g (float[0, 4] x) => (float y) <float v = {1}> { h = Mul(x, v) y = "
                               "ReduceMean<keepdims = 0>(h) }")),
                   {inspect(0, ""), train(kNumeric, "")}});
  cases.push_back({"O17",
                   "scalars",
                   file(parsed("g (float x) => (float y) <float v = {1}> { y = Mul(x, v) }")),
                   {inspect(0, ""), train(0, "")}});
  const auto attribute = [&](const std::string& name, const std::string& node, double value,
                             std::vector<Command> runs) {
    ModelProto model = parsed("g (float[2, 4] x) => (float y) <float v = {1}> { h = " + node +
                              " m = ReduceMean<keepdims = 0>(h) y = Mul(m, v) }");
    model.mutable_graph()->mutable_node(0)->mutable_attribute(0)->set_f(static_cast<float>(value));
    cases.push_back({"O17", name, file(model), std::move(runs)});
  };
  for (const auto& [name, value] :
       {std::pair<const char*, double>{"NaN", NAN}, {"infinity", INFINITY}, {"-infinity", -INFINITY}}) {
    attribute(std::string("LeakyRelu by ") + name, "LeakyRelu<alpha = 1.0>(x)", value,
              {inspect(0, ""), train(kNumeric, "")});
    attribute(std::string("Elu by ") + name, "Elu<alpha = 1.0>(x)", value,
              {inspect(0, ""), train(kNumeric, "")});
  }
}

}  // namespace

std::vector<Case> odd_cases() {
  Cases cases;
  names_that_bite(cases);
  wrong_attributes(cases);
  wrong_groups(cases);
  wrong_declarations(cases);
  from_the_future(cases);
  polyglots(cases);
  unusual_numbers(cases);
  return cases;
}

}  // namespace gradloom::hostile
