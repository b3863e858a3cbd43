// What RNN, GRU, LSTM and their gradient row share; see recurrent.h.
#include "engine/ops/recurrent/recurrent.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <limits>

#include "engine/ops/dims.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::RecurrentActivation;
using kernels::RecurrentFunction;

struct NamedFunction {
  const char* name;
  RecurrentFunction function;
  double alpha, beta;  // defaults
};
constexpr NamedFunction kFunctions[] = {
    {"sigmoid", RecurrentFunction::sigmoid, 0, 0},
    {"tanh", RecurrentFunction::tanh, 0, 0},
    {"relu", RecurrentFunction::relu, 0, 0},
    {"affine", RecurrentFunction::affine, 1, 0},
    {"leakyrelu", RecurrentFunction::leaky_relu, 0.01, 0},
    {"thresholdedrelu", RecurrentFunction::thresholded_relu, 1, 0},
    {"scaledtanh", RecurrentFunction::scaled_tanh, 1, 1},
    {"hardsigmoid", RecurrentFunction::hard_sigmoid, 0.2, 0.5},
    {"elu", RecurrentFunction::elu, 1, 0},
    {"softsign", RecurrentFunction::softsign, 0, 0},
    {"softplus", RecurrentFunction::softplus, 0, 0},
};

bool takes_alpha(RecurrentFunction f) {
  return f == RecurrentFunction::affine || f == RecurrentFunction::leaky_relu ||
         f == RecurrentFunction::thresholded_relu || f == RecurrentFunction::scaled_tanh ||
         f == RecurrentFunction::hard_sigmoid || f == RecurrentFunction::elu;
}
bool takes_beta(RecurrentFunction f) {
  return f == RecurrentFunction::affine || f == RecurrentFunction::scaled_tanh ||
         f == RecurrentFunction::hard_sigmoid;
}

// Names are joined by commas, in any case.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> names(1);
  for (const char c : text) {
    if (c == ',')
      names.emplace_back();
    else
      names.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return names;
}

std::string default_activations(const std::string& kind) {
  return kind == "RNN" ? "tanh" : kind == "GRU" ? "sigmoid,tanh" : "sigmoid,tanh,tanh";
}

// The activations of all directions; parameters are taken from the lists in order,
// by the functions that have some.
Result<std::vector<RecurrentActivation>> activations_of(const std::string& kind, const Attrs& attrs,
                                                        std::int64_t directions) {
  const std::size_t per_direction = split(default_activations(kind)).size();
  std::vector<std::string> names = split(attrs.text("activations"));
  if (attrs.text("activations").empty()) {
    names.clear();
    for (std::int64_t d = 0; d < directions; ++d)
      for (const std::string& name : split(default_activations(kind))) names.push_back(name);
  }
  const std::size_t needed = per_direction * static_cast<std::size_t>(directions);
  if (names.size() < needed)
    return infer_error("activations has " + std::to_string(names.size()) + " entries, " +
                       std::to_string(needed) + " are needed");
  names.resize(needed);  // RNN's default in the specification is one for each of two directions
  const std::vector<double> alphas = attrs.reals("activation_alpha"), betas = attrs.reals("activation_beta");
  std::size_t alpha = 0, beta = 0;
  std::vector<RecurrentActivation> result;
  for (const std::string& name : names) {
    const auto found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                    [&](const NamedFunction& f) { return name == f.name; });
    if (found == std::end(kFunctions)) return infer_error("activation '" + name + "' is unknown");
    RecurrentActivation a{found->function, found->alpha, found->beta};
    if (takes_alpha(a.function) && alpha < alphas.size()) a.alpha = alphas[alpha++];
    if (takes_beta(a.function) && beta < betas.size()) a.beta = betas[beta++];
    result.push_back(a);
  }
  return result;
}

}  // namespace

Result<RecurrentShape> recurrent_shape(const std::string& kind, const Attrs& attrs, const Shape& x,
                                       const Shape& r) {
  if (x.size() != 3 || r.size() != 3)
    return infer_error("input " + to_string(x) + " and weights " + to_string(r) + " must have 3 dims");
  const std::string direction = attrs.text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return infer_error("direction '" + direction + "' is unknown");
  RecurrentShape s{};
  s.batch_first = attrs.integer("layout") != 0;
  s.directions = direction == "bidirectional" ? 2 : 1;
  s.steps = x[s.batch_first ? 1 : 0];
  s.batch = x[s.batch_first ? 0 : 1];
  s.inputs = x[2];
  s.hidden = r[2] >= 0 ? r[2] : attrs.integer("hidden_size", -1);
  s.gates = kind == "RNN" ? 1 : kind == "GRU" ? 3 : 4;
  s.slots = kind == "RNN" ? 1 : 4;
  if (s.hidden < 1) return infer_error("hidden_size must be known");
  if (attrs.integer("hidden_size", s.hidden) != s.hidden || dims_differ(r[1], s.gates * s.hidden) ||
      dims_differ(r[0], s.directions))
    return infer_error("recurrent weights " + to_string(r) + " do not fit " + std::to_string(s.directions) +
                       " directions of " + std::to_string(s.gates) + " gates of hidden_size " +
                       std::to_string(attrs.integer("hidden_size", s.hidden)));
  TRY(activations_of(kind, attrs, s.directions));
  return s;
}

Result<std::vector<kernels::RecurrentCell>> recurrent_cells(const std::string& kind, const Attrs& attrs,
                                                            DType dtype, const RecurrentShape& s) {
  using kernels::RecurrentKind;
  const auto activations = TRY(activations_of(kind, attrs, s.directions));
  const std::size_t per_direction = activations.size() / static_cast<std::size_t>(s.directions);
  const bool linear = attrs.integer("linear_before_reset") != 0;
  kernels::RecurrentCell cell{};
  cell.dtype = dtype;
  cell.kind = kind == "RNN"    ? RecurrentKind::rnn
              : kind == "LSTM" ? RecurrentKind::lstm
              : linear         ? RecurrentKind::gru_linear
                               : RecurrentKind::gru;
  cell.coupled = kind == "LSTM" && attrs.integer("input_forget") != 0;
  cell.clip = attrs.has("clip") ? attrs.real("clip") : std::numeric_limits<double>::infinity();
  cell.steps = s.steps;
  cell.batch = s.batch;
  cell.hidden = s.hidden;
  cell.gates = s.gates;
  cell.slots = s.slots;
  const std::int64_t row = s.gates * s.hidden;
  cell.x_time = s.batch_first ? row : s.batch * row;
  cell.x_batch = s.batch_first ? s.steps * row : row;
  std::vector<kernels::RecurrentCell> cells;
  for (std::int64_t d = 0; d < s.directions; ++d) {
    cell.reverse = d == 1 || attrs.text("direction") == "reverse";
    for (std::size_t i = 0; i < per_direction; ++i)
      cell.activations[i] = activations[static_cast<std::size_t>(d) * per_direction + i];
    cells.push_back(cell);
  }
  return cells;
}

kernels::MatMulDesc slice_product(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                                  std::int64_t a_row, std::int64_t b_row, std::int64_t b_col,
                                  std::int64_t c_row, bool accumulate) {
  kernels::MatMulDesc desc;
  desc.dtype = dtype;
  desc.m = m;
  desc.n = n;
  desc.k = k;
  desc.a_strides = {a_row, 1};
  desc.b_strides = {b_row, b_col};
  desc.c_strides = {c_row, 1};
  desc.accumulate = accumulate;
  return desc;
}

kernels::MatMulDesc in_every_step(kernels::MatMulDesc desc, std::int64_t steps) {
  constexpr std::int64_t kFewSteps = 4;  // packing takes as long as one or two products
  desc.packed_b = steps > kFewSteps;
  return desc;
}

}  // namespace gradloom
