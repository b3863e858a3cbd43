// O1 to O6: bytes, graphs, shapes and contents that are none.
#include <random>

#include "tests/hostile/build.h"

namespace gradloom::hostile {

namespace {

using Cases = std::vector<Case>;

constexpr int kUsage = 2, kBad = 3, kLimit = 4;

std::string random_bytes(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(random() & 0xff));
  return bytes;
}

// Row O1: no ONNX file, or not a whole one.
void bytes_that_are_no_model(Cases& cases) {
  const auto add = [&](const std::string& name, const std::string& bytes, const std::string& says) {
    cases.push_back({"O1", name, file(bytes), refused(kBad, says)});
  };
  add("empty", "", "it is empty");
  add("png", std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16), "not an ONNX file");
  add("pdf", "%PDF-1.7 not a model at all", "not an ONNX file");
  add("zip", std::string("PK\3\4\24\0\0\0\10\0", 10), "not an ONNX file");
  add("json", "{\"model\": {\"graph\": []}}", "not an ONNX file");
  add("elf",
      std::string("\x7f"
                  "ELF\2\1\1\0\0\0\0\0\0\0\0\0",
                  16),
      "not an ONNX file");
  add("zeros", std::string(4096, '\0'), "not an ONNX file");
  add("ones", std::string(4096, '\xff'), "not an ONNX file");
  add("no graph", number_field(1, 8), "it has no graph");
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8})
    add("random " + std::to_string(seed), random_bytes(seed, 4096), "model.onnx");
  add("number of eleven bytes", "\x08" + std::string(11, '\x80') + "\x01", "too long");
  add("length over the end", std::string("\x3a\xff\xff\xff\xff\x07", 6), "truncated");
  add("length of 2^63", "\x3a" + varint(std::uint64_t{1} << 63), "truncated");
  add("length of 2^64 - 1", "\x3a" + varint(~std::uint64_t{0}), "truncated");
  add("field number 0", std::string("\x02\x00", 2), "field 0");
  add("field number 2^29", varint(std::uint64_t{1} << 32 | 2) + std::string(1, '\0'),
      "is unknown in ModelProto");
  add("group", "\x3b\x3c", "wire type 3");
  add("end of a group", "\x3c", "wire type 4");
  add("wire type 6", "\x3e", "wire type 6");
  add("number where a message belongs", "\x38\x01", "wire type 0");
  add("child longer than its parent", field(7, std::string("\x0a\x7f\x0a\x02", 4)), "truncated");
  add("part of a packed float", model_of(field(5, field(4, "abc"))), "part of a number");
  add("packed list ends inside a number", model_of(field(5, field(7, "\x80"))), "inside a number");
  const std::string whole = plain().SerializeAsString();
  Case cuts{"O1",
            "truncated",
            [whole](const Place& place) {
              for (std::size_t at = 0; at < whole.size(); at += 5)
                place.write("cut-" + std::to_string(at) + ".onnx", whole.substr(0, at));
            },
            {}};
  for (std::size_t at = 0; at < whole.size(); at += 5) {
    // All but the opset, which comes last: a model that can be looked at.
    ModelProto rest;
    const bool graph = rest.ParseFromString(whole.substr(0, at)) && rest.has_graph();
    cuts.runs.push_back({{"inspect", "cut-" + std::to_string(at) + ".onnx"},
                         graph ? 0 : kBad,
                         graph ? "does not say its opset" : "cut-"});
  }
  cases.push_back(std::move(cuts));
}

// Row O2: graphs that have no order.
void cycles(Cases& cases) {
  const auto add = [&](const char* row, const std::string& name, const std::string& graph,
                       const std::string& says) {
    cases.push_back({row, name, file(parsed(graph)), refused(kBad, says)});
  };
  add("O2", "self-loop", "g (float[2] x) => (float[2] y) { y = Add(x, y) }", "cycle: node 'Add_0'");
  add("O2", "cycle of two", "g (float[2] x) => (float[2] y) { y = Add(x, b) b = Relu(y) }", "cycle");
  add("O2", "cycle of three",
      "g (float[2] x) => (float[2] y) { a = Add(x, c) b = Relu(a) c = Neg(b) y = Neg(c) }", "cycle");
  add("O2", "cycle through a subgraph",
      "g (float[2] x) => (float[2] y) { t = Constant<value = bool {1}>() a = If(t) <then_branch = p () => "
      "(float[2] r) { r = Neg(b) }, else_branch = q () => (float[2] s) { s = Relu(x) }>"
      " b = Relu(a) y = Neg(b) }",
      "cycle");
  ModelProto ring;
  ring = parsed("g (float[2] x) => (float[2] v0) { }");
  for (int i = 0; i < 20000; ++i)
    add_node(*ring.mutable_graph(), "Relu", {"v" + std::to_string((i + 1) % 20000)},
             {"v" + std::to_string(i)});
  cases.push_back({"O2", "ring of 20000", file(ring), refused(kBad, "cycle")});
  cases.push_back({"O2",
                   "unsorted but acyclic",
                   file(parsed("g (float[2] x) => (float y) { y = ReduceSum<keepdims = 0>(h) h = Mul(x, w) w "
                               "= Identity(p) p = Neg(x) }")),
                   {inspect(0, "not in topological order: sorted")}});
}

// Row O3: one name for two things.
void names_defined_twice(Cases& cases) {
  const auto add = [&](const char* row, const std::string& name, const std::string& graph,
                       const std::string& says) {
    cases.push_back({row, name, file(parsed(graph)), refused(kBad, says)});
  };
  add("O3", "node output twice", "g (float[2] x) => (float[2] y) { y = Relu(x) y = Neg(x) }",
      "'y' is defined twice: by node 'Relu_0' (Relu) and by node 'Neg_1'");
  add("O3", "input twice", "g (float[2] x, float[2] x) => (float[2] y) { y = Relu(x) }",
      "'x' is defined twice");
  add("O3", "output named as the input", "g (float[2] x) => (float[2] x) { x = Relu(x) }",
      "'x' is defined twice");
  add("O3", "one node, one name twice", "g (float[2] x) => (float[2] y) { y, y = Dropout(x) }",
      "'y' is defined twice");
  add("O3", "shadowed in a subgraph",
      "g (float[2] x) => (float[2] y) { t = Constant<value = bool {1}>() y = If(t) <then_branch = p () => "
      "(float[2] x) { x = Neg(t) }, else_branch = q () => (float[2] s) { s = Relu(x) }> }",
      "defined twice: around a subgraph and in it");
  cases.push_back({"O3",
                   "graph output twice",
                   file(parsed("g (float[2] x) => (float[2] y, float[2] y) { y = Relu(x) }")),
                   {inspect(0, "")}});
  const auto with = [](const auto& change) { return changed(plain(), change); };
  cases.push_back({"O3", "initializer twice",
                   file(with([](ModelProto&, GraphProto& g) { *g.add_initializer() = g.initializer(0); })),
                   refused(kBad, "'w' is defined twice")});
  cases.push_back({"O3", "opset twice",
                   file(with([](ModelProto& m, GraphProto&) { *m.add_opset_import() = m.opset_import(0); })),
                   refused(kBad, "given twice")});
  cases.push_back({"O3", "function twice", file(with([](ModelProto& m, GraphProto&) {
                     for (int i = 0; i < 2; ++i) {
                       m.add_functions()->set_name("f");
                       m.mutable_functions(i)->set_domain("d");
                     }
                   })),
                   refused(kBad, "function 'f' is defined twice")});
  cases.push_back({"O3", "opset of a function twice", file(with([](ModelProto& m, GraphProto&) {
                     auto* f = m.add_functions();
                     f->set_name("f");
                     for (int i = 0; i < 2; ++i) f->add_opset_import()->set_version(17);
                   })),
                   refused(kBad, "given twice")});
}

// Row O4: inputs and outputs that nothing produces, and nodes without them.
void what_nothing_produces(Cases& cases) {
  const auto add = [&](const char* row, const std::string& name, const std::string& graph,
                       const std::string& says) {
    cases.push_back({row, name, file(parsed(graph)), refused(kBad, says)});
  };
  const auto with = [](const auto& change) { return changed(plain(), change); };
  add("O4", "input by nothing", "g (float[2] x) => (float[2] y) { y = Add(x, ghost) }",
      "input 1 'ghost' is produced by nothing");
  add("O4", "output by nothing", "g (float[2] x) => (float[2] z) { y = Relu(x) }",
      "graph output 'z' is produced by nothing");
  add("O4", "captured by nothing",
      "g (float[2] x) => (float[2] y) { t = Constant<value = bool {1}>() y = If(t) <then_branch = p () => "
      "(float[2] r) { r = Neg(ghost) }, else_branch = q () => (float[2] s) { s = Relu(x) }> }",
      "a captured value 'ghost' is produced by nothing");
  add("O4", "too few inputs", "g (float[2] x) => (float[2] y) { y = Add(x) }", "has 1 input, it needs 2");
  add("O4", "too many inputs", "g (float[2] x) => (float[2] y) { y = Relu(x, x) }",
      "has 2 inputs, at opset 17 it takes at most 1");
  add("O4", "too many outputs", "g (float[2] x) => (float[2] y) { y, z = Relu(x) }",
      "has 2 outputs, at opset 17 it gives at most 1");
  cases.push_back({"O4", "required input left out",
                   file(with([](ModelProto&, GraphProto& g) { g.mutable_node(0)->set_input(0, ""); })),
                   refused(kBad, "input 0 is required")});
  cases.push_back({"O4", "no outputs of a node",
                   file(with([](ModelProto&, GraphProto& g) { g.mutable_node(0)->clear_output(); })),
                   refused(kBad, "")});
  cases.push_back({"O4",
                   "graph without outputs",
                   file(with([](ModelProto&, GraphProto& g) { g.clear_output(); })),
                   {inspect(0, ""), train(kUsage, "no loss")}});
  cases.push_back(
      {"O4", "graph without anything", file(model_of("")), {inspect(0, ""), train(kUsage, "no loss")}});
  cases.push_back({"O4", "input without a name",
                   file(with([](ModelProto&, GraphProto& g) { g.mutable_input(0)->set_name(""); })),
                   refused(kBad, "has no name")});
  cases.push_back({"O4", "input without a type",
                   file(with([](ModelProto&, GraphProto& g) { g.mutable_input(0)->clear_type(); })),
                   only_viewed("", kBad, "input 'x'")});
}

// Row O5: dims that no memory holds.
void impossible_dims(Cases& cases) {
  const auto input_dims = [](const std::vector<std::int64_t>& dims) {
    return changed(plain(), [&](ModelProto&, GraphProto& g) {
      auto* shape = g.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
      shape->clear_dim();
      for (const std::int64_t dim : dims) shape->add_dim()->set_dim_value(dim);
    });
  };
  const auto weight_dims = [](const std::vector<std::int64_t>& dims) {
    return changed(plain(), [&](ModelProto&, GraphProto& g) {
      auto* w = g.mutable_initializer(0);
      w->clear_dims();
      for (const std::int64_t dim : dims) w->add_dims(dim);
    });
  };
  constexpr std::int64_t kHuge = std::int64_t{1} << 40, kMost = INT64_MAX;
  cases.push_back({"O5", "negative dim of an input", file(input_dims({-3, 4})),
                   only_viewed("negative", kBad, "negative dimension -3")});
  cases.push_back({"O5", "dims of an input overflow", file(input_dims({kHuge, kHuge})),
                   only_viewed("63 bits", kLimit, "more elements than fit in 63 bits")});
  cases.push_back({"O5", "bytes of an input overflow", file(input_dims({kMost / 4, 4})),
                   only_viewed("63 bits", kLimit, "63 bits")});
  cases.push_back({"O5", "overflow before a zero", file(input_dims({kHuge, kHuge, 0})),
                   only_viewed("63 bits", kLimit, "63 bits")});
  cases.push_back({"O5", "overflow after a zero", file(input_dims({0, kHuge, kHuge})),
                   only_viewed("63 bits", kLimit, "63 bits")});
  cases.push_back({"O5", "an input of 4 EiB", file(input_dims({kMost / 8, 1})), refused(kLimit, "63 bits")});
  cases.push_back({"O5", "rank of an input", file(input_dims(std::vector<std::int64_t>(33, 1))),
                   only_viewed("rank 33", kLimit, "rank 33, over the limit of 32")});
  cases.push_back({"O5", "negative dim of a weight", file(weight_dims({-4})), refused(kBad, "negative")});
  cases.push_back(
      {"O5", "dims of a weight overflow", file(weight_dims({kHuge, kHuge})), refused(kLimit, "63 bits")});
  cases.push_back(
      {"O5", "bytes of a weight overflow", file(weight_dims({kMost / 3})), refused(kLimit, "63 bits")});
  cases.push_back({"O5", "zero dim with data", file(weight_dims({0})),
                   refused(kBad, "needs 0 elements, the file has 4")});
  cases.push_back({"O5", "rank of a weight", file(weight_dims(std::vector<std::int64_t>(33, 1))),
                   refused(kLimit, "rank 33")});
  cases.push_back({"O5", "rank of a million", file(weight_dims(std::vector<std::int64_t>(1000000, 1))),
                   refused(kLimit, "rank 1000000")});
}

// Row O5: shapes that nodes compute.
void impossible_computed_shapes(Cases& cases) {
  const auto computed = [&](const std::string& name, const std::string& nodes, std::vector<Command> runs) {
    cases.push_back({"O5", name,
                     file(parsed("g (float[2, 4] x) => (float y) <float v = {1}> { " + nodes +
                                 " m = ReduceMean<keepdims = 0>(h) y = Mul(m, v) }")),
                     std::move(runs)});
  };
  computed("reshape to a negative dim", "s = Constant<value = int64[2] {-7, 2}>() h = Reshape(x, s)",
           only_viewed("could not be inferred", kBad, "Reshape"));
  computed("reshape to dims that overflow",
           "s = Constant<value = int64[3] {4611686018427387904, 4611686018427387904, 2}>() h = Reshape(x, s)",
           only_viewed("could not be inferred", kBad, "Reshape"));
  computed("reshape to two unknowns", "s = Constant<value = int64[2] {-1, -1}>() h = Reshape(x, s)",
           only_viewed("could not be inferred", kBad, "Reshape"));
  computed("expand to dims that overflow",
           "s = Constant<value = int64[4] {4611686018427387904, 4, 2, 4}>() h = Expand(x, s)",
           refused(kLimit, "63 bits"));
  computed("expand to a negative dim", "s = Constant<value = int64[2] {-9, 4}>() h = Expand(x, s)",
           only_viewed("could not be inferred", kBad, "Expand"));
  computed("tile by a negative count", "s = Constant<value = int64[2] {-1, 4}>() h = Tile(x, s)",
           only_viewed("could not be inferred", kBad, "Tile"));
  computed("tile by 2^62",
           "s = Constant<value = int64[2] {4611686018427387904, 4611686018427387904}>() h = Tile(x, s)",
           only_viewed("63 bits", kBad, "63 bits"));
  computed("pad by the least number",
           "s = Constant<value = int64[4] {-9223372036854775808, 0, 0, 0}>() h = Pad(x, s)",
           only_viewed("could not be inferred", kBad, "Pad"));
  computed("pad by the greatest number",
           "s = Constant<value = int64[4] {9223372036854775807, 0, 9223372036854775807, 0}>() h = Pad(x, s)",
           only_viewed("Pad", kBad, "do not fit"));
  computed("range of too many steps",
           "a = Constant<value = int64 {0}>() b = Constant<value = int64 {9223372036854775807}>() c = "
           "Constant<value = int64 {1}>() r = Range(a, b, c) f = Cast<to = 1>(r) h = Sub(f, f)",
           refused(kLimit, "63 bits"));
  computed("range by nothing",
           "a = Constant<value = int64 {0}>() b = Constant<value = int64 {5}>() c = Constant<value = int64 "
           "{0}>() r = Range(a, b, c) h = Cast<to = 1>(r)",
           only_viewed("could not be inferred", kBad, "Range"));
  computed("axis out of range", "h = Softmax<axis = 9223372036854775807>(x)",
           only_viewed("could not be inferred", kBad, "axis"));
  computed("least axis", "h = Concat<axis = -9223372036854775808>(x, x)",
           only_viewed("could not be inferred", kBad, "axis"));
  computed("permutation of others", "h = Transpose<perm = [7, -9223372036854775808]>(x)",
           only_viewed("could not be inferred", kBad, "Transpose"));
  computed("split of other sizes",
           "s = Constant<value = int64[2] {9223372036854775807, 9223372036854775807}>() h, i = Split<axis = "
           "0>(x, s)",
           only_viewed("could not be inferred", kBad, "Split"));
  computed("gather out of range",
           "s = Constant<value = int64[2] {5, -9223372036854775808}>() h = Gather(x, s)",
           only_viewed("could not be inferred", kBad, "Gather"));
}

// Row O5: slices at the edges of their numbers.
void impossible_slices(Cases& cases) {
  const auto computed = [&](const std::string& name, const std::string& nodes, std::vector<Command> runs) {
    cases.push_back({"O5", name,
                     file(parsed("g (float[2, 4] x) => (float y) <float v = {1}> { " + nodes +
                                 " m = ReduceMean<keepdims = 0>(h) y = Mul(m, v) }")),
                     std::move(runs)});
  };
  computed("slice at the edges",
           "a = Constant<value = int64[1] {-9223372036854775808}>() b = Constant<value = int64[1] "
           "{9223372036854775807}>() c = Constant<value = int64[1] {9223372036854775807}>()"
           " d = Constant<value = int64[1] {-9223372036854775808}>() h = Slice(x, a, b, d, c)",
           only_viewed("could not be inferred", kBad, "Slice"));
  computed("slice by the least step",
           "a = Constant<value = int64[1] {9223372036854775807}>() b = Constant<value = int64[1] "
           "{-9223372036854775808}>() c = Constant<value = int64[1] {0}>()"
           " d = Constant<value = int64[1] {-9223372036854775808}>() s = Slice(x, a, b, c, d) h = Mul(s, x)",
           {train(0, "")});
  computed(
      "slice by nothing",
      "a = Constant<value = int64[1] {0}>() d = Constant<value = int64[1] {0}>() h = Slice(x, a, a, a, d)",
      only_viewed("could not be inferred", kBad, "Slice"));
}

// Row O5: windows of convolutions and pools.
void impossible_windows(Cases& cases) {
  const auto pooled = [&](const std::string& name, const std::string& node, std::vector<Command> runs) {
    cases.push_back({"O5", name,
                     file(parsed("g (float[1, 1, 8, 8] x) => (float y) <float[1, 1, 3, 3] w = {1, 2, 3, 4, "
                                 "5, 6, 7, 8, 9}> { h = " +
                                 node + " y = ReduceMean<keepdims = 0>(h) }")),
                     std::move(runs)});
  };
  pooled("convolution by stride 0", "Conv<strides = [0, 1]>(x, w)",
         only_viewed("could not be inferred", kBad, "Conv"));
  pooled("convolution padded by 2^63 - 1",
         "Conv<pads = [9223372036854775807, 9223372036854775807, 9223372036854775807, "
         "9223372036854775807]>(x, w)",
         only_viewed("could not be inferred", kBad, "Conv"));
  pooled("convolution dilated by 2^62", "Conv<dilations = [4611686018427387904, 4611686018427387904]>(x, w)",
         only_viewed("could not be inferred", kBad, "Conv"));
  pooled("convolution in 2^63 - 1 groups", "Conv<group = 9223372036854775807>(x, w)",
         only_viewed("could not be inferred", kBad, "Conv"));
  pooled("convolution in no groups", "Conv<group = 0>(x, w)",
         only_viewed("could not be inferred", kBad, "Conv"));
  pooled("transposed convolution of 2^62",
         "ConvTranspose<strides = [4611686018427387904, 4611686018427387904]>(x, w)",
         only_viewed("could not be inferred", kBad, "ConvTranspose"));
  pooled("pool of a negative window", "MaxPool<kernel_shape = [-2, 2]>(x)",
         only_viewed("could not be inferred", kBad, "MaxPool"));
  pooled("pool of 2^62", "AveragePool<kernel_shape = [4611686018427387904, 4611686018427387904]>(x)",
         only_viewed("could not be inferred", kBad, "AveragePool"));
}

// Row O6: contents that do not fill their tensor, or fill it twice.
void contents_of_another_size(Cases& cases) {
  const auto add = [&](const std::string& name, int type, const std::vector<std::int64_t>& dims,
                       const std::function<void(TensorProto&)>& fill, int code, const std::string& says) {
    ModelProto model = plain();
    model.mutable_graph()->clear_initializer();
    fill(*add_tensor(*model.mutable_graph(), "w", type, dims));
    cases.push_back({"O6", name, file(model), refused(code, says)});
  };
  // Types that are not supported can still be seen.
  const auto of_type = [&](const std::string& name, int type, const std::string& says) {
    add(
        name, type, {1}, [](TensorProto& t) { t.set_raw_data("abc"); }, kBad, says);
    cases.back().runs = only_viewed(says, kBad, says);
  };
  const auto raw = [](const std::string& bytes) {
    return [bytes](TensorProto& t) { t.set_raw_data(bytes); };
  };
  add("billion elements, three bytes", TensorProto::FLOAT, {1000000000}, raw("abc"), kBad,
      "needs 4000000000 bytes, the file has 3");
  add(
      "billion elements, nothing", TensorProto::FLOAT, {1000000000}, [](TensorProto&) {}, kBad,
      "needs 1000000000 elements, the file has 0");
  add("one byte too few", TensorProto::FLOAT, {2}, raw("1234567"), kBad, "needs 8 bytes");
  add("one byte too many", TensorProto::FLOAT, {2}, raw("123456789"), kBad, "needs 8 bytes");
  add(
      "list too long", TensorProto::FLOAT, {1},
      [](TensorProto& t) { t.add_float_data(1), t.add_float_data(2); }, kBad, "the file has 2");
  add(
      "list of another type", TensorProto::FLOAT, {1}, [](TensorProto& t) { t.add_int64_data(1); }, kBad,
      "the file has 0");
  add(
      "contents twice", TensorProto::FLOAT, {1},
      [](TensorProto& t) { t.add_float_data(1), t.set_raw_data("abcd"); }, kBad, "given twice");
  add(
      "two lists", TensorProto::FLOAT, {1}, [](TensorProto& t) { t.add_float_data(1), t.add_double_data(1); },
      kBad, "given twice");
  of_type("strings in bytes", TensorProto::STRING, "string is not supported");
  of_type("float6", 27, "float6e2m3 is not supported");
}

// Row O6: types of less than a byte, and types that are none.
void contents_of_small_types(Cases& cases) {
  const auto add = [&](const std::string& name, int type, const std::vector<std::int64_t>& dims,
                       const std::function<void(TensorProto&)>& fill, int code, const std::string& says) {
    ModelProto model = plain();
    model.mutable_graph()->clear_initializer();
    fill(*add_tensor(*model.mutable_graph(), "w", type, dims));
    cases.push_back({"O6", name, file(model), refused(code, says)});
  };
  // Types that are not supported can still be seen.
  const auto of_type = [&](const std::string& name, int type, const std::string& says) {
    add(
        name, type, {1}, [](TensorProto& t) { t.set_raw_data("abc"); }, kBad, says);
    cases.back().runs = only_viewed(says, kBad, says);
  };
  const auto raw = [](const std::string& bytes) {
    return [bytes](TensorProto& t) { t.set_raw_data(bytes); };
  };
  constexpr int kFloat8 = 17, kInt4 = 22, kFloat4 = 23, kInt2 = 26;
  add("packed int4 too short", kInt4, {5}, raw("ab"), kBad, "needs 3 bytes, the file has 2");
  add("packed int4 too long", kInt4, {3}, raw("abc"), kBad, "needs 2 bytes, the file has 3");
  add("int2, a byte for each", kInt2, {4}, raw("abcd"), kBad, "needs 1 bytes, the file has 4");
  add("billion int2, three bytes", kInt2, {1000000000}, raw("abc"), kBad, "needs 250000000 bytes");
  add("exabytes of int4", kInt4, {std::int64_t{1} << 40, std::int64_t{1} << 40}, raw("abc"), 4, "63 bits");
  add(
      "float4, a number for each", kFloat4, {4},
      [](TensorProto& t) {
        for (int i = 0; i < 4; ++i) t.add_int32_data(1);
      },
      kBad, "needs 2 packed elements, the file has 4");
  add(
      "float8 out of range", kFloat8, {1}, [](TensorProto& t) { t.add_int32_data(-1); }, kBad,
      "out of the type's range");
  add("float8 too short", kFloat8, {3}, raw("ab"), kBad, "needs 3 bytes, the file has 2");
  of_type("element type 999", 999, "element type 999 is unknown");
  of_type("element type -1", -1, "element type -1 is unknown");
  of_type("no element type", 0, "element type 0 is unknown");
  add(
      "number out of range", TensorProto::UINT8, {1}, [](TensorProto& t) { t.add_int32_data(256); }, kBad,
      "out of the type's range");
  add(
      "segment", TensorProto::FLOAT, {1},
      [](TensorProto& t) { t.add_float_data(1), t.mutable_segment()->set_begin(0); }, kBad, "segmented");
}

// Row O6: sparse initializers.
void sparse_contents(Cases& cases) {
  const auto sparse = [&](const std::string& name, int code, const std::string& says,
                          const std::vector<std::int64_t>& dims, const std::vector<std::int64_t>& indices,
                          const std::function<void(onnx::SparseTensorProto&)>& change = {}) {
    const auto add_sparse = [=](ModelProto&, GraphProto& g) {
      onnx::SparseTensorProto& s = *g.add_sparse_initializer();
      s.mutable_values()->set_name("s");
      s.mutable_values()->set_data_type(TensorProto::FLOAT);
      s.mutable_values()->add_dims(static_cast<std::int64_t>(indices.size()));
      s.mutable_indices()->set_data_type(TensorProto::INT64);
      s.mutable_indices()->add_dims(static_cast<std::int64_t>(indices.size()));
      for (const std::int64_t i : indices) {
        s.mutable_values()->add_float_data(1);
        s.mutable_indices()->add_int64_data(i);
      }
      for (const std::int64_t dim : dims) s.add_dims(dim);
      if (change) change(s);
    };
    cases.push_back({"O6", "sparse: " + name, file(changed(plain(), add_sparse)), refused(code, says)});
  };
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  sparse("empty message", kBad, "element type 0 is unknown", {}, {},
         [](onnx::SparseTensorProto& s) { s.Clear(); });
  sparse("index behind the end", kBad, "index 4 of value 0 is outside of 0..3", {4}, {4});
  sparse("negative index", kBad, "index -1", {4}, {-1});
  sparse("largest index", kBad, "is outside of", {4}, {INT64_MAX});
  sparse("index twice", kBad, "do not ascend", {4}, {2, 2});
  sparse("negative size", kBad, "-4", {-4}, {0});
  sparse("sizes that overflow", kLimit, "sparse initializer 's'", {kLarge, kLarge}, {0});
  sparse("4 TiB of zeros", kLimit, "folded_bytes", {kLarge}, {0});
  sparse("65 MiB of zeros", kLimit, "folded_bytes", {65 << 18}, {0});
  sparse("zeros of no size", kBad, "index 0 of value 0", {0}, {0});
  sparse("33 dims", kLimit, "rank 33", std::vector<std::int64_t>(33, 1), {0});
  sparse("values missing", kBad, "needs 2 elements", {4}, {1, 2},
         [](onnx::SparseTensorProto& s) { s.mutable_values()->clear_float_data(); });
  sparse("indices of floats", kBad, "its indices are f32", {4}, {1}, [](onnx::SparseTensorProto& s) {
    s.mutable_indices()->set_data_type(TensorProto::FLOAT);
    s.mutable_indices()->clear_int64_data();
    s.mutable_indices()->add_float_data(1);
  });
  sparse("values of rank 2", kBad, "rank 2", {4}, {1},
         [](onnx::SparseTensorProto& s) { s.mutable_values()->add_dims(1); });
  sparse("strings", kBad, "string is not supported", {4}, {1},
         [](onnx::SparseTensorProto& s) { s.mutable_values()->set_data_type(TensorProto::STRING); });
}

// Row O6: the same in a node.
void constants_of_another_size(Cases& cases) {
  cases.push_back({"O6",
                   "constant of a billion",
                   file(parsed("g (float[2] x) => (float y) { c = Constant<value = float {1}>() h = Mul(x, "
                               "c) y = ReduceSum<keepdims = 0>(h) }")),
                   {inspect(0, "")}});
  ModelProto constant = parsed(
      "g (float[2] x) => (float y) { c = Constant<value = float {1}>() h = Mul(x, c) y = ReduceSum<keepdims "
      "= 0>(h) }");
  constant.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_t()->add_dims(1000000000);
  cases.back().make = file(constant);
  cases.back().runs = refused(kBad, "needs 1000000000 elements");
}

}  // namespace

std::vector<Case> onnx_cases() {
  Cases cases;
  bytes_that_are_no_model(cases);
  cycles(cases);
  names_defined_twice(cases);
  what_nothing_produces(cases);
  impossible_dims(cases);
  impossible_computed_shapes(cases);
  impossible_slices(cases);
  impossible_windows(cases);
  contents_of_another_size(cases);
  contents_of_small_types(cases);
  sparse_contents(cases);
  constants_of_another_size(cases);
  return cases;
}

}  // namespace gradloom::hostile
