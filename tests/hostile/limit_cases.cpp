// O10, O11: small files that would grow: by repeating, or by asking for huge tensors.
#include "tests/hostile/build.h"

namespace gradloom::hostile {

namespace {

using Cases = std::vector<Case>;

constexpr int kUsage = 2, kBad = 3, kLimit = 4, kDevice = 6;

// Row O10: a few bytes of the file that become objects.
void many_empty_objects(Cases& cases) {
  const auto add = [&](const std::string& name, const std::function<std::string()>& bytes,
                       std::vector<Command> runs) {
    cases.push_back(
        {"O10", name, [bytes](const Place& place) { place.write("model.onnx", bytes()); }, std::move(runs)});
  };
  constexpr std::size_t kMillion = 1000000;
  const std::string empty_node = field(1, ""), empty_attribute = field(5, ""), empty_text = field(1, "");
  add(
      "8 million empty nodes", [=] { return model_of(repeated(empty_node, 8 * kMillion)); },
      refused(kLimit, "more than 1000000 nodes"));
  add(
      "a million empty nodes", [=] { return model_of(repeated(empty_node, kMillion)); },
      refused(kLimit, "more memory than the file"));
  add(
      "400000 empty nodes", [=] { return model_of(repeated(empty_node, 400000)); },
      refused(kLimit, "more memory than the file"));
  add(
      "10 million attributes", [=] { return model_of(field(1, repeated(empty_attribute, 10 * kMillion))); },
      refused(kLimit, "more memory than the file"));
  add("100000 empty nodes", [=] { return model_of(repeated(empty_node, 100000)); },
      {inspect(0, ""), train(kBad, "")});
  add(
      "400000 attributes",
      [=] { return model_of(field(1, field(4, "Relu") + repeated(empty_attribute, 400000))); },
      refused(kBad, ""));
  add(
      "a million inputs",
      [=] { return model_of(field(1, field(4, "Relu") + field(2, "y") + repeated(empty_text, kMillion))); },
      refused(kBad, ""));
  add(
      "20 million inputs",
      [=] {
        return model_of(field(1, field(4, "Relu") + field(2, "y") + repeated(empty_text, 20 * kMillion)));
      },
      refused(kLimit, ""));
  add(
      "5 million graph inputs", [=] { return model_of(repeated(field(11, ""), 5 * kMillion)); },
      refused(kLimit, "more memory than the file"));
  add(
      "10 million value infos", [=] { return model_of(repeated(field(13, ""), 10 * kMillion)); },
      refused(kLimit, "more memory than the file"));
  add(
      "10 million initializers", [=] { return model_of(repeated(field(5, ""), 10 * kMillion)); },
      refused(kLimit, "more memory than the file"));
  add(
      "10 million functions",
      [=] { return model_of("") + repeated(varint(25 << 3 | 2) + std::string(1, '\0'), 10 * kMillion); },
      refused(kLimit, "more memory than the file"));
  add(
      "10 million opsets", [=] { return model_of("") + repeated(field(8, ""), 10 * kMillion); },
      refused(kLimit, "more memory than the file"));
}

// Row O10: lists, and contents that must not be held twice.
void many_numbers_and_texts(Cases& cases) {
  const auto add = [&](const std::string& name, const std::function<std::string()>& bytes,
                       std::vector<Command> runs) {
    cases.push_back(
        {"O10", name, [bytes](const Place& place) { place.write("model.onnx", bytes()); }, std::move(runs)});
  };
  constexpr std::size_t kMillion = 1000000;
  add(
      "10 million strings",
      [=] {
        return model_of(
            field(1, field(4, "Relu") + field(5, field(1, "a") + repeated(field(9, ""), 10 * kMillion))));
      },
      refused(kLimit, "more memory than the file"));
  add(
      "60 million packed integers",
      [=] {
        return model_of(
            field(5, field(8, "t") + number_field(2, 7) + field(7, std::string(60 * kMillion, '\1'))));
      },
      refused(kLimit, ""));
  add(
      "60 million packed dims",
      [=] {
        return model_of(
            field(5, field(8, "t") + number_field(2, 1) + field(1, std::string(60 * kMillion, '\1'))));
      },
      refused(kLimit, ""));
  add(
      "10 million integers one by one",
      [=] {
        return model_of(
            field(5, field(8, "t") + number_field(2, 7) + repeated(number_field(7, 1), 10 * kMillion)));
      },
      refused(kBad, ""));
  add(
      "70 million integers one by one",
      [=] {
        return model_of(
            field(5, field(8, "t") + number_field(2, 7) + repeated(number_field(7, 1), 70 * kMillion)));
      },
      refused(kLimit, ""));
  add("text of 100 MB", [=] { return model_of("") + field(6, std::string(100 * kMillion, 'd')); },
      {train(kUsage, "no loss")});
  // A large file that is refused late: its contents must not be held twice.
  add("weights of 400 MB before a mistake",
      [=] {
        const std::string weights = field(5, number_field(1, 100 * kMillion) + number_field(2, 1) +
                                                 field(8, "w") + field(9, std::string(400 * kMillion, '\0')));
        const std::string node =
            field(1, field(1, "w") + field(1, "ghost") + field(2, "y") + field(4, "Add"));
        return model_of(node + weights + field(12, field(1, "y")));
      },
      {inspect(kBad, "'ghost' is produced by nothing")});
  add("weights of 400 MB before a late mistake",
      [=] {
        const std::string weights = field(5, number_field(1, 100 * kMillion) + number_field(2, 1) +
                                                 field(8, "w") + field(9, std::string(400 * kMillion, '\0')));
        const std::string node = field(
            1, field(1, "w") + field(2, "y") + field(4, "Relu") + field(5, field(1, "a") + field(1, "b")));
        return model_of(field(1, field(1, "w") + field(2, "y") + field(4, "Concat")) + weights +
                        field(12, field(1, "y")));
      },
      {inspect(kBad, "attribute 'axis' is missing")});
}

// Row O10: names that std::hash cannot tell apart.
void names_of_one_hash(Cases& cases) {
  const auto add = [&](const std::string& name, const std::function<std::string()>& bytes,
                       std::vector<Command> runs) {
    cases.push_back(
        {"O10", name, [bytes](const Place& place) { place.write("model.onnx", bytes()); }, std::move(runs)});
  };
  // Names that std::hash cannot tell apart: two blocks of eight bytes, the second undoes what the
  // first did.
  const auto colliding = [](std::uint64_t i) {
    constexpr std::uint64_t kMul = 0xc6a4a7935bd1e995;
    std::uint64_t inverse = kMul;  // Newton's iteration modulo 2^64
    for (int k = 0; k < 6; ++k) inverse *= 2 - kMul * inverse;
    const auto shift = [](std::uint64_t v) { return v ^ (v >> 47); };
    const std::uint64_t start = 0xc70f6907 ^ (16 * kMul);
    const std::uint64_t after = (start ^ (shift(i * kMul) * kMul)) * kMul;
    const std::uint64_t second = shift((after ^ 0x123456789abcdef) * inverse) * inverse;
    std::string name;
    for (const std::uint64_t block : {i, second})
      for (int k = 0; k < 8; ++k) name.push_back(static_cast<char>(block >> (8 * k)));
    return name;
  };
  add(
      "100000 names of one hash",
      [=] {
        std::string nodes;
        for (std::uint64_t i = 0; i < 100000; ++i)
          nodes += field(1, field(1, i == 0 ? "x" : colliding(i - 1)) + field(2, colliding(i)) +
                                field(3, colliding(i + (1 << 20))) + field(4, "Relu"));
        return model_of(
            nodes +
            field(11, field(1, "x") +
                          field(2, field(1, number_field(1, 1) + field(2, field(1, number_field(1, 2)))))) +
            field(12, field(1, "absent")));
      },
      refused(kBad, "graph output 'absent' is produced by nothing"));
  add(
      "100000 initializers of one hash",
      [=] {
        std::string graph;
        for (std::uint64_t i = 0; i < 100000; ++i)
          graph += field(5, number_field(2, 1) + field(8, colliding(i)) + field(4, std::string(4, '\0')));
        return model_of(graph + field(12, field(1, "absent")));
      },
      refused(kBad, "graph output 'absent' is produced by nothing"));
}

// Row O10: one value that everything reads, one operator that reads everything, names that begin alike.
void many_readers_and_outputs(Cases& cases) {
  const auto add = [&](const std::string& name, const std::function<std::string()>& bytes,
                       std::vector<Command> runs) {
    cases.push_back(
        {"O10", name, [bytes](const Place& place) { place.write("model.onnx", bytes()); }, std::move(runs)});
  };
  // One value that everything reads, one operator that reads everything, and names that begin alike.
  add(
      "100000 readers of one value",
      [=] {
        std::string nodes;
        for (int i = 0; i < 100000; ++i)
          nodes += field(1, field(1, "x") + field(2, "y" + std::to_string(i)) + field(4, "Relu"));
        return model_of(
            nodes +
            field(11, field(1, "x") +
                          field(2, field(1, number_field(1, 1) + field(2, field(1, number_field(1, 2)))))) +
            field(12, field(1, "absent")));
      },
      refused(kBad, "'absent'"));
  add(
      "one Concat of 200000",
      [=] {
        return model_of(
            field(1, repeated(field(1, "x"), 200000) + field(2, "y") + field(4, "Concat") +
                         field(5, field(1, "axis") + number_field(3, 0) + number_field(20, 2))) +
            field(11, field(1, "x") +
                          field(2, field(1, number_field(1, 1) + field(2, field(1, number_field(1, 2)))))) +
            field(12, field(1, "absent")));
      },
      refused(kBad, "'absent'"));
  add(
      "one Max of 50000",
      [=] {
        return model_of(
            field(1, repeated(field(1, "x"), 50000) + field(2, "y") + field(4, "Max")) +
            field(11, field(1, "x") +
                          field(2, field(1, number_field(1, 1) + field(2, field(1, number_field(1, 2)))))) +
            field(12, field(1, "absent")));
      },
      refused(kBad, "'absent'"));
  add("20000 outputs",
      [=] {
        std::string nodes, outputs;
        for (int i = 0; i < 20000; ++i) {
          nodes += field(1, field(1, "x") + field(2, "y" + std::to_string(i)) + field(4, "Relu"));
          outputs += field(12, field(1, "y" + std::to_string(i)));
        }
        return model_of(
            nodes +
            field(11, field(1, "x") +
                          field(2, field(1, number_field(1, 1) + field(2, field(1, number_field(1, 2)))))) +
            outputs);
      },
      {inspect(0, "")});
  add(
      "100000 nodes of one name",
      [=] {
        std::string nodes;
        for (int i = 0; i < 100000; ++i)
          nodes +=
              field(1, field(1, "x") + field(2, "y" + std::to_string(i)) + field(3, "n") + field(4, "Relu"));
        return model_of(
            nodes +
            field(11, field(1, "x") +
                          field(2, field(1, number_field(1, 1) + field(2, field(1, number_field(1, 2)))))) +
            field(12, field(1, "absent")));
      },
      refused(kBad, "'absent'"));
}

// Row O11: results that no memory holds.
void huge_results(Cases& cases) {
  const auto add = [&](const std::string& name, const std::string& nodes, std::vector<Command> runs,
                       int opset = 17) {
    cases.push_back({"O11", name,
                     file(parsed("g (float[2, 4] x) => (float y) <float v = {1}> { " + nodes +
                                     " total = ReduceSum<keepdims = 0>(h) y = Mul(total, v) }",
                                 opset)),
                     std::move(runs)});
  };
  const auto not_run = [](const std::string& says) {
    return std::vector<Command>{inspect(0, ""), train(kDevice, says)};
  };
  const std::string many = "s = Constant<value = int64[3] {1000000, 1000, 1000}>() ";
  const std::string as_sum = " m = ReduceSum<keepdims = 0>(c) h = Mul(x, m)";
  add("ConstantOfShape", many + "c = ConstantOfShape(s)" + as_sum, not_run("the plan needs"));
  add("Expand", "s = Constant<value = int64[4] {1000000, 1000, 2, 4}>() h = Expand(x, s)",
      not_run("the plan needs"));
  add("Expand of a constant", many + "one = Constant<value = float {1}>() c = Expand(one, s)" + as_sum,
      not_run("the plan needs"));
  add("Tile", "s = Constant<value = int64[2] {1000000, 1000000}>() h = Tile(x, s)",
      not_run("the plan needs"));
  add("Pad", "s = Constant<value = int64[4] {1000000, 1000000, 1000000, 1000000}>() h = Pad(x, s)",
      not_run("the plan needs"));
  add("Range",
      "a = Constant<value = float {0}>() b = Constant<value = float {1e12}>() d = Constant<value = float "
      "{1}>() c = Range(a, b, d)" +
          as_sum,
      not_run("the plan needs"));
  add("OneHot",
      "i = Constant<value = int64[2] {0, 1}>() n = Constant<value = int64 {1000000000000}>() w = "
      "Constant<value = float[2] {0, 1}>() c = OneHot(i, n, w)" +
          as_sum,
      not_run("the plan needs"));
  add("EyeLike",
      many + "t = Constant<value = int64[2] {1000000, 1000000}>() z = ConstantOfShape(t) c = EyeLike(z)" +
          as_sum,
      not_run("the plan needs"));
  add("Resize",
      "r = Constant<value = float[0] {}>() s = Constant<value = float[2] {1000000.0, 1000000.0}>() h = "
      "Resize(x, r, s)",
      only_viewed("too many elements", kBad, "too many elements"));
  add("Resize by infinity",
      "r = Constant<value = float[0] {}>() s = Constant<value = float[2] {3e38, 3e38}>() h = Resize(x, r, s)",
      only_viewed("too many elements", kBad, "too many elements"));
  add("product of outer vectors",
      "s = Constant<value = int64[2] {1000000, 1}>() t = Constant<value = int64[2] {1, 1000000}>() a = "
      "ConstantOfShape(s) b = ConstantOfShape(t) c = MatMul(a, b)" +
          as_sum,
      not_run("the plan needs"));
  add("random numbers", "c = RandomNormal<shape = [1000000, 1000000]>()" + as_sum, not_run("the plan needs"));
}

// Row O11: results that double from node to node.
void results_that_double(Cases& cases) {
  const auto add = [&](const std::string& name, const std::string& nodes, std::vector<Command> runs,
                       int opset = 17) {
    cases.push_back({"O11", name,
                     file(parsed("g (float[2, 4] x) => (float y) <float v = {1}> { " + nodes +
                                     " total = ReduceSum<keepdims = 0>(h) y = Mul(total, v) }",
                                 opset)),
                     std::move(runs)});
  };
  const auto not_run = [](const std::string& says) {
    return std::vector<Command>{inspect(0, ""), train(kDevice, says)};
  };
  add(
      "doubling forty times",
      [] {
        std::string nodes = "v0 = Identity(x) ";
        for (int i = 0; i < 40; ++i)
          nodes += "v" + std::to_string(i + 1) + " = Concat<axis = 0>(v" + std::to_string(i) + ", v" +
                   std::to_string(i) + ") ";
        return nodes + "h = Identity(v40)";
      }(),
      not_run("the plan needs"));
  add(
      "doubling seventy times",
      [] {
        std::string nodes = "v0 = Identity(x) ";
        for (int i = 0; i < 70; ++i)
          nodes += "v" + std::to_string(i + 1) + " = Concat<axis = 0>(v" + std::to_string(i) + ", v" +
                   std::to_string(i) + ") ";
        return nodes + "h = Identity(v70)";
      }(),
      refused(kLimit, "63 bits"));
}

// Row O11: below the limit of one output, many times over: folded contents have a sum of their own.
void many_foldable_constants(Cases& cases) {
  const auto add = [&](const std::string& name, const std::string& nodes, std::vector<Command> runs,
                       int opset = 17) {
    cases.push_back({"O11", name,
                     file(parsed("g (float[2, 4] x) => (float y) <float v = {1}> { " + nodes +
                                     " total = ReduceSum<keepdims = 0>(h) y = Mul(total, v) }",
                                 opset)),
                     std::move(runs)});
  };
  const std::string many = "s = Constant<value = int64[3] {1000000, 1000, 1000}>() ";
  // Below the limit of one output, many times over: folded contents have a sum of their own.
  add("a thousand constants of 60 MB",
      [] {
        std::string nodes = "s = Constant<value = int64[1] {15000000}>() ";
        for (int i = 0; i < 1000; ++i) nodes += "c" + std::to_string(i) + " = ConstantOfShape(s) ";
        return nodes + "m = ReduceSum<keepdims = 0>(c999) h = Mul(x, m)";
      }(),
      {inspect(0, "folding limits")});
  add("work without end",
      [] {
        std::string nodes = "s = Constant<value = int64[2] {1000, 1000}>() c0 = ConstantOfShape(s) ";
        for (int i = 0; i < 300; ++i)
          nodes += "c" + std::to_string(i + 1) + " = MatMul(c" + std::to_string(i) + ", c0) ";
        return nodes + "m = ReduceSum<keepdims = 0>(c300) h = Mul(x, m)";
      }(),
      {inspect(0, "folding limits")});
  add("small results of large constants",
      [] {
        std::string nodes =
            "s = Constant<value = int64[1] {15000000}>() c = ConstantOfShape(s) k = Constant<value = "
            "int64[1] {1}>() ";
        for (int i = 0; i < 3000; ++i)
          nodes += "v" + std::to_string(i) + ", i" + std::to_string(i) + " = TopK(c, k) ";
        return nodes + "h = Mul(x, v2999)";
      }(),
      {inspect(0, "")});
  add("nonzero of a large constant",
      [] {
        std::string nodes =
            "s = Constant<value = int64[1] {8000000}>() c = ConstantOfShape<value = float[1] {1}>(s) ";
        for (int i = 0; i < 300; ++i) nodes += "v" + std::to_string(i) + " = NonZero(c) ";
        return nodes + "f = Cast<to = 1>(v299) m = ReduceSum<keepdims = 0>(f) h = Mul(x, m)";
      }(),
      {inspect(0, "")});
  add("sort of a large constant",
      [] {
        std::string nodes =
            "s = Constant<value = int64[1] {8000000}>() c0 = ConstantOfShape<value = float[1] {1}>(s) k = "
            "Constant<value = int64[1] {8000000}>() ";
        for (int i = 0; i < 300; ++i)
          nodes += "c" + std::to_string(i + 1) + ", i" + std::to_string(i) + " = TopK(c" + std::to_string(i) +
                   ", k) ";
        return nodes + "m = ReduceSum<keepdims = 0>(c300) h = Mul(x, m)";
      }(),
      {inspect(0, "")});
}

// Row O11: loops that unrolling does not end.
void endless_loops(Cases& cases) {
  const auto add = [&](const std::string& name, const std::string& nodes, std::vector<Command> runs,
                       int opset = 17) {
    cases.push_back({"O11", name,
                     file(parsed("g (float[2, 4] x) => (float y) <float v = {1}> { " + nodes +
                                     " total = ReduceSum<keepdims = 0>(h) y = Mul(total, v) }",
                                 opset)),
                     std::move(runs)});
  };
  const auto looping = [](const std::string& trips, const std::string& body) {
    return "m = Constant<value = int64 {" + trips +
           "}>() t = Constant<value = bool {1}>() h = Loop(m, t, x) <body = b (int64 i, bool c, float[2, 4] "
           "s) => (bool k, float[2, 4] r) { k = Identity(c) " +
           body + " }>";
  };
  const auto unrolled = only_viewed("more than 50000 iterations", kLimit, "more than 50000 iterations");
  const auto too_many_nodes = only_viewed("after unrolling", kLimit, "after unrolling");
  add("Loop of 2^63 - 1", looping("9223372036854775807", "r = Neg(s)"), unrolled);
  add("Loop without an end",
      "t = Constant<value = bool {1}>() h = Loop(none, t, x) <body = b (int64 i, bool c, float[2, 4] s) => "
      "(bool k, float[2, 4] r) { k = Identity(c) r = Neg(s) }>",
      unrolled);
  add("Loop of ten nodes",
      looping("9223372036854775807",
              "a = Neg(s) b1 = Neg(a) d = Neg(b1) e = Neg(d) f = Neg(e) g1 = Neg(f) r = Neg(g1)"),
      too_many_nodes);
  add("Loop of nothing, 2^63 - 1",
      "m = Constant<value = int64 {9223372036854775807}>() t = Constant<value = bool {1}>() h = Loop(m, t, "
      "x) <body = b (int64 i, bool c, float[2, 4] s) => (bool c, float[2, 4] s) { }>",
      unrolled);
  add("Loop in Loop in Loop",
      looping("1000",
              "r = Loop(m, t, s) <body = b1 (int64 i1, bool c1, float[2, 4] s1) => (bool k1, float[2, 4] r1) "
              "{ k1 = Identity(c1) r1 = Loop(m, t, s1)"
              " <body = b2 (int64 i2, bool c2, float[2, 4] s2) => (bool k2, float[2, 4] r2) { k2 = "
              "Identity(c2) r2 = Neg(s2) }> }>"),
      unrolled);
  add("Scan of a billion",
      "a = Constant<value = float {1}>() s = Constant<value = int64[2] {1000000000, 1}>() q = Expand(a, s) "
      "h, p = Scan<num_scan_inputs = 1, body = b (float[2, 4] e, float[1] v)"
      " => (float[2, 4] r, float[1] o) { r = Add(e, v) o = Neg(v) }>(x, q)",
      unrolled);
  // A hundred loops, each of which is taken back.
  add(
      "a hundred endless Loops",
      [] {
        std::string nodes = "t = Constant<value = bool {1}>() v0 = Identity(x) ";
        for (int i = 0; i < 100; ++i) {
          const std::string k = std::to_string(i);
          nodes += "v" + std::to_string(i + 1) + " = Loop(none, t, v" + k + ") <body = b" + k + " (int64 i" +
                   k + ", bool c" + k + ", float[2, 4] s" + k + ") => (bool k" + k + ", float[2, 4] r" + k +
                   ") { k" + k + " = Identity(c" + k + ") r" + k + " = Neg(s" + k + ") }> ";
        }
        return nodes + "h = Identity(v100)";
      }(),
      only_viewed("more than 50000 iterations", kLimit, "more than 50000 iterations"));
}

}  // namespace

std::vector<Case> limit_cases() {
  Cases cases;
  many_empty_objects(cases);
  many_numbers_and_texts(cases);
  names_of_one_hash(cases);
  many_readers_and_outputs(cases);
  huge_results(cases);
  results_that_double(cases);
  many_foldable_constants(cases);
  endless_loops(cases);
  return cases;
}

}  // namespace gradloom::hostile
