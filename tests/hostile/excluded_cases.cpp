// O13: values that an operator's definition excludes.
#include "tests/hostile/build.h"

namespace gradloom::hostile {

namespace {

constexpr int kBad = 3;

}  // namespace

std::vector<Case> excluded_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const std::string& tensors, const std::string& node,
                       const std::string& says, int opset = 17) {
    cases.push_back({"O13", name,
                     file(parsed("g (float[1, 1, 4, 4] x) => (float y) <float[4] w = {1, 2, 3, 4}" + tensors +
                                     "> { h = Mul(x, w) " + node + " y = ReduceMean<keepdims = 0>(z) }",
                                 opset)),
                     only_viewed("could not be inferred", kBad, says)});
  };
  add("convolution padded by no word", ", float[1, 1, 2, 2] k = {1, 2, 3, 4}",
      "z = ConvTranspose<auto_pad = \"nosuch\">(h, k)",
      "attribute 'auto_pad' is 'nosuch', it must be NOTSET");
  add("convolution in no groups", ", float[1, 1, 2, 2] k = {1, 2, 3, 4}", "z = Conv<group = 0>(h, k)",
      "attribute 'group' is 0, it must be at least 1");
  add("attention of an unknown mode", "", "z = Attention<qk_matmul_output_mode = 9>(h, h, h)",
      "attribute 'qk_matmul_output_mode' is 9, it must be 0 to 3", 23);
  add("flag of 7", "", "z = MaxPool<kernel_shape = [2, 2], ceil_mode = 7>(h)",
      "attribute 'ceil_mode' is 7, it must be 0 or 1");
  add("epsilon below zero", ", float[1] s = {1}", "z = InstanceNormalization<epsilon = -1.0>(h, s, s)",
      "attribute 'epsilon' is -1, it must be at least 0");
  add("dropout of everything", "", "z = Dropout<ratio = 1.0>(h)", "attribute 'ratio' is 1, it must be", 10);
  add("pads of a whole window", "", "z = MaxPool<kernel_shape = [2, 2], pads = [0, 0, 2, 0]>(h)",
      "pads of 2 hold a whole window of 2");
  add("crop of more than there is", ", int64[8] p = {0, 0, 0, -5, 0, 0, 0, 0}", "z = Pad(h, p)",
      "pads of axis 3 do not fit size 4");
  add("too few pads", ", int64[2] p = {0, 1}", "z = Pad(h, p)", "two pads per axis");
  add("pads of one axis twice", ", int64[4] p = {0, 1, 0, 1}, int64[2] a = {3, -1}", "z = Pad(h, p, none, a)",
      "an axis is given twice", 18);
  add("tuple beyond the data", ", int64[1, 4] i = {0, 0, 4, 0}", "z = GatherND(h, i)",
      "index 4 is out of range for axis 2 of size 4");
  add("update beyond the data", ", int64[1, 4] i = {0, 0, 0, -5}, float[1] u = {1}", "z = ScatterND(h, i, u)",
      "index -5 is out of range for axis 3 of size 4");
  const auto scaled = [&](const std::string& name, float scale) {
    add(name, ", float[4] s = {1, 1, 1, 1}", "z = Resize(h, none, s)", "leaves nothing of an axis of 4");
    ModelProto model = parsed(
        "g (float[1, 1, 4, 4] x) => (float y) <float[4] w = {1, 2, 3, 4}, float[4] s = {1, 1, 1, 1}>"
        "{ h = Mul(x, w) z = Resize(h, none, s) y = ReduceMean<keepdims = 0>(z) }");
    model.mutable_graph()->mutable_initializer(1)->set_float_data(2, scale);
    cases.back().make = file(model);
  };
  scaled("resized by a denormal", 1e-45f);
  scaled("resized to less than one", 0.2f);
  cases.push_back(
      {"O13", "scan in direction 2",
       file(parsed("g (float[2, 4] x) => (float y) <float[4] w = {1, 2, 3, 4}, float[4] s = {0, 0, 0, 0}>"
                   "{ h = Mul(x, w) f, z = Scan<num_scan_inputs = 1, scan_input_directions = [2], body = b "
                   "(float[4] a, float[4] i) => (float[4] c, float[4] o) { c = Add(a, i) o = Neg(c) }>(s, h)"
                   " y = ReduceMean<keepdims = 0>(z) }")),
       refused(kBad, "attribute 'scan_input_directions' is 2, it must be 0 or 1")});
  return cases;
}

}  // namespace gradloom::hostile
