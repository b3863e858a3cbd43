// What MatMul, Gemm and FusedMatMul share; see matrix_product.h.
#include "engine/ops/products/matrix_product.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>

#include "engine/ops/copies.h"
#include "engine/ops/dims.h"
#include "engine/ops/operand_rows.h"
#include "engine/ops/preparation.h"
#include "kernels/prepared/bf16.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

// Strides of an operand, stored with these, in the product's dims [batch.., row, col]; broadcast dims get 0.
std::vector<std::int64_t> operand_strides(const Shape& stored,
                                          const std::vector<std::int64_t>& stored_strides, const Perm& perm,
                                          const ProductShape& s, bool row_vector) {
  std::vector<std::int64_t> strides = permuted(stored_strides, perm);
  Shape dims = permuted(stored, perm);
  if (stored.size() == 1) {
    dims.insert(row_vector ? dims.begin() : dims.end(), 1);
    strides.insert(row_vector ? strides.begin() : strides.end(), row_vector ? stored[0] : 1);
  }
  for (std::size_t i = 0; i + 2 < dims.size(); ++i)
    if (dims[i] == 1) strides[i] = 0;
  strides.insert(strides.begin(), s.batch.size() + 2 - dims.size(), 0);
  return strides;
}

bool of_vectors(const ProductShape& s) { return s.p.size() != s.batch.size() + 2; }

// Strides of Y, stored with these, in the product's dims [batch.., row, col].
std::vector<std::int64_t> result_strides(const ProductShape& s, const std::vector<std::int64_t>& stored,
                                         const Perm& perm_y) {
  if (of_vectors(s)) {  // a 1-d operand: the missing dim has size 1
    Shape full = s.batch;
    full.push_back(s.m);
    full.push_back(s.n);
    return dense_strides(full);
  }
  return perm_y.empty() ? stored : permuted(stored, inverse(perm_y));
}

// One dim of the iteration space with the strides of A, B and Y.
struct Dim {
  std::int64_t size, a, b, c;
};

// Fewer and larger products: batch dims over which B is constant become rows,
// neighbours that step evenly merge.
void fold_batch(std::vector<Dim>& batch, Dim& row) {
  batch.erase(std::remove_if(batch.begin(), batch.end(), [](const Dim& d) { return d.size == 1; }),
              batch.end());
  while (!batch.empty() && batch.back().b == 0) {
    const Dim d = batch.back();
    if (row.size != 1 && (d.a != row.size * row.a || d.c != row.size * row.c)) break;
    row = row.size == 1 ? Dim{d.size, d.a, 0, d.c} : Dim{row.size * d.size, row.a, 0, row.c};
    batch.pop_back();
  }
  for (std::size_t i = batch.size(); i-- > 1;) {
    const Dim inner = batch[i];
    Dim& outer = batch[i - 1];
    if (outer.a != inner.size * inner.a || outer.b != inner.size * inner.b || outer.c != inner.size * inner.c)
      continue;
    outer = {outer.size * inner.size, inner.a, inner.b, inner.c};
    batch.erase(batch.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// oneDNN divides dims into blocks with 32 bits.
Status require_countable(const kernels::MatMulDesc& desc) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - (1 << 16);
  bool fits = std::max({desc.m, desc.n, desc.k}) <= kMost;
  for (const std::int64_t size : desc.batch) fits = fits && size <= kMost;
  return fits || desc.dtype == DType::f64
             ? Status{}
             : Status{no_kernel("no CPU kernel for a product with a dim over 2^31")};
}

// Integers with products of their own, exact modulo 2^32 or 2^64.
bool is_whole(DType dtype) {
  return dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u32 || dtype == DType::u64;
}

// Y = activation(Y + beta * C), in place.
kernels::EwProgram addend_program(DType dtype, const Shape& y, const Addend& addend, bool relu) {
  using kernels::EwOp;
  kernels::EwProgram program;
  program.rank = static_cast<int>(y.size());
  kernels::EwInput dense{dtype, {}}, other{dtype, {}};
  const auto strides = dense_strides(y);
  for (std::size_t i = 0; i < y.size(); ++i) {
    program.dims[i] = y[i];
    dense.strides[i] = y[i] == 1 ? 0 : strides[i];
    other.strides[i] = addend.strides[i];
  }
  program.inputs = {dense, other};
  program.constants = {{dtype, addend.beta}};
  program.code = {{EwOp::Mul, dtype, dtype, {1, 2, -1}, 0}, {EwOp::Add, dtype, dtype, {0, 3, -1}, 0}};
  if (relu) program.code.push_back({EwOp::Relu, dtype, dtype, {4, -1, -1}, 0});
  program.outputs = {{static_cast<std::int16_t>(relu ? 5 : 4), dtype}};
  kernels::ew_collapse_dims(program);
  return program;
}

}  // namespace

Result<ProductSpec> product_spec(const Attrs& attrs, std::size_t rank_a, std::size_t rank_b) {
  ProductSpec spec;
  if (rank_a < 2 || rank_b < 2) return infer_error("operands must have at least 2 dims");
  spec.perm_a = TRY(checked_perm("perm_a", attrs.integers("perm_a"), rank_a));
  spec.perm_b = TRY(checked_perm("perm_b", attrs.integers("perm_b"), rank_b));
  spec.perm_y = TRY(checked_perm("perm_y", attrs.integers("perm_y"), std::max(rank_a, rank_b)));
  spec.alpha = attrs.real("alpha", 1);
  return spec;
}

kernels::MatMulDesc product_desc(DType dtype, const ProductShape& s, const Shape& a, const Shape& b,
                                 const ProductSpec& spec) {
  return product_desc(dtype, s, a, b, spec, {dense_strides(a), dense_strides(b), dense_strides(s.y)});
}

kernels::MatMulDesc product_desc(DType dtype, const ProductShape& s, const Shape& a, const Shape& b,
                                 const ProductSpec& spec, const ProductStrides& strides) {
  const auto a_strides = operand_strides(a, strides.a, spec.perm_a, s, true),
             b_strides = operand_strides(b, strides.b, spec.perm_b, s, false);
  const auto c_strides = result_strides(s, strides.y, spec.perm_y);
  const std::size_t rank = s.batch.size();
  std::vector<Dim> batch;
  for (std::size_t i = 0; i < rank; ++i)
    batch.push_back({s.batch[i], a_strides[i], b_strides[i], c_strides[i]});
  Dim row{s.m, a_strides[rank], 0, c_strides[rank]};
  fold_batch(batch, row);
  kernels::MatMulDesc desc;
  desc.dtype = dtype;
  desc.m = row.size;
  desc.n = s.n;
  desc.k = s.k;
  desc.alpha = spec.alpha;
  for (const Dim& d : batch) {
    desc.batch.push_back(d.size);
    desc.a_strides.push_back(d.a);
    desc.b_strides.push_back(d.b);
    desc.c_strides.push_back(d.c);
  }
  for (std::int64_t v : {row.a, a_strides[rank + 1]}) desc.a_strides.push_back(v);
  for (std::int64_t v : {b_strides[rank], b_strides[rank + 1]}) desc.b_strides.push_back(v);
  for (std::int64_t v : {row.c, c_strides[rank + 1]}) desc.c_strides.push_back(v);
  return desc;
}

bool multiplies_bf16(kernels::Target target, DType dtype) {
  return kernels::has_prepared_kernels(target) && dtype == DType::bf16 && kernels::has_bf16_products();
}

bool has_wide_results(kernels::Target target, DType dtype) {
  return multiplies_bf16(target, dtype) || (!kernels::has_prepared_kernels(target) && is_half(dtype));
}

bool is_identity(const Perm& perm) {
  for (std::size_t i = 0; i < perm.size(); ++i)
    if (perm[i] != as_dim(i)) return false;
  return true;
}

Perm inverse(const Perm& perm) {
  Perm result(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i) result[static_cast<std::size_t>(perm[i])] = as_dim(i);
  return result;
}

Shape permuted(const Shape& shape, const Perm& perm) {
  if (perm.empty()) return shape;
  Shape result(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) result[i] = shape[static_cast<std::size_t>(perm[i])];
  return result;
}

Result<Perm> checked_perm(const char* name, const Perm& perm, std::size_t rank) {
  if (perm.empty()) return perm;
  std::vector<bool> seen(rank, false);
  bool good = perm.size() == rank;
  for (std::int64_t p : perm) {
    good = good && p >= 0 && p < as_dim(rank) && !seen[static_cast<std::size_t>(p)];
    if (!good)
      return infer_error(std::string(name) + " is not a permutation of " + std::to_string(rank) + " axes");
    seen[static_cast<std::size_t>(p)] = true;
  }
  return is_identity(perm) ? Perm{} : perm;
}

Result<ProductShape> product_shape(const Shape& a, const Shape& b, const ProductSpec& spec) {
  if (a.empty() || b.empty()) return infer_error("operands must have at least one dim");
  ProductShape s;
  s.a = permuted(a, spec.perm_a);
  s.b = permuted(b, spec.perm_b);
  if (a.size() == 1) s.a.insert(s.a.begin(), 1);
  if (b.size() == 1) s.b.push_back(1);
  s.m = s.a[s.a.size() - 2];
  s.n = s.b.back();
  if (dims_differ(s.a.back(), s.b[s.b.size() - 2]))
    return infer_error("inner dims differ: " + std::to_string(s.a.back()) + " columns in " + to_string(s.a) +
                       ", " + std::to_string(s.b[s.b.size() - 2]) + " rows in " + to_string(s.b));
  s.k = known_dim(s.a.back(), s.b[s.b.size() - 2]);
  auto batch = broadcast_shapes(Shape(s.a.begin(), s.a.end() - 2), Shape(s.b.begin(), s.b.end() - 2));
  if (!batch.ok())
    return infer_error("batch dims of " + to_string(s.a) + " and " + to_string(s.b) + " do not broadcast");
  s.batch = batch.value();
  s.p = s.batch;
  if (a.size() > 1) s.p.push_back(s.m);
  if (b.size() > 1) s.p.push_back(s.n);
  TRY(checked_perm("perm_y", spec.perm_y, s.p.size()));
  s.y = permuted(s.p, spec.perm_y);
  return s;
}

namespace {

// Where results without a GPU's product go through gelu_tanh or its slope: from `in` (and aux) to Y.
std::shared_ptr<const kernels::EwProgram> gelu_program(DType dtype, const Shape& y,
                                                       kernels::Activation activation) {
  using kernels::Activation, kernels::EwOp;
  if (activation != Activation::gelu_tanh && activation != Activation::gelu_tanh_grad) return nullptr;
  const bool slope = activation == Activation::gelu_tanh_grad;
  FlatProgram program(dtype, element_count(y), slope ? 2 : 1);
  return program.finish(slope ? program.add(EwOp::GeluTanhGrad, 0, 1) : program.add(EwOp::GeluTanh, 0));
}

// The sums of A or B over k, by a kernel of their own.
kernels::ReduceArgs operand_sums(DType dtype, const ProductShape& s, kernels::GemmOperand of) {
  return {
      dtype,  kernels::Reduction::sum, 1, s.k, of == kernels::GemmOperand::a ? s.m : s.n, nullptr, nullptr,
      nullptr};
}

// A product as it is launched: one kernel on a GPU, elsewhere (and with nothing to multiply) in parts.
struct ProductLaunch {
  DType dtype = DType::f32;
  std::int64_t count = 0;  // elements of Y
  bool bias = false;
  ProductSlots slots;
  std::size_t workspace_bytes = 0;
  std::shared_ptr<kernels::MatMul> matmul;  // CPU
  bool other_order = false;                 // in_other_order
  std::optional<kernels::GemmArgs> gemm;    // GPU
  // Addend, in place; on a GPU what `slots` say of it is gemm's
  std::shared_ptr<const kernels::EwProgram> tail;
  std::size_t tail_input = 2;
  std::shared_ptr<const kernels::EwProgram> gelu;  // not with gemm
  kernels::GemmOperand sums_of = kernels::GemmOperand::none;
  kernels::ReduceArgs sums{};  // not with gemm

  void run(const LaunchArgs& args) const {
    if (count > 0) multiply(args);
    if (gemm || sums_of == kernels::GemmOperand::none) return;
    kernels::ReduceArgs r = sums;
    r.in = args.inputs[sums_of == kernels::GemmOperand::a ? 0 : 1];
    r.out = args.outputs[slots.sums];
    r.workspace = args.workspace;
    args.on.reduce(r);
  }

 private:
  void* aux_out(const LaunchArgs& args) const {
    return slots.aux_out < 0 ? nullptr : args.outputs[slots.aux_out];
  }
  const void* aux_in(const LaunchArgs& args) const {
    return slots.aux_in < 0 ? nullptr : args.inputs[slots.aux_in];
  }

  void multiply(const LaunchArgs& args) const {
    const void* const bias_values = bias ? args.inputs[2] : nullptr;
    void* const linear = gelu && aux_out(args) != nullptr ? aux_out(args) : args.outputs[0];
    if (matmul) {
      matmul->run(args.inputs[0], args.inputs[1], bias_values, linear, args.workspace);
    } else if (gemm) {
      run_gemm(args, bias_values);
    } else {
      const double zero = 0;  // all bits zero, f32 or f64
      args.on.fill({dtype_bytes(dtype), count, &zero, linear});
    }
    if (tail) {
      const void* inputs[] = {linear, args.inputs[tail_input]};
      args.on.elementwise({tail.get(), inputs, &linear, nullptr});
    }
    if (gelu) {
      const void* inputs[] = {linear, aux_in(args)};
      args.on.elementwise({gelu.get(), inputs, args.outputs, nullptr});
    }
  }

  void run_gemm(const LaunchArgs& args, const void* bias_values) const {
    kernels::GemmArgs g = *gemm;
    g.a = args.inputs[0];
    g.b = args.inputs[1];
    g.bias = bias_values;
    g.c = args.outputs[0];
    g.workspace = args.workspace;
    g.workspace_bytes = workspace_bytes;
    g.aux = slots.aux_in < 0 ? aux_out(args) : const_cast<void*>(aux_in(args));
    g.sums = slots.sums < 0 ? nullptr : args.outputs[slots.sums];
    g.addend = slots.addend < 0 ? nullptr : args.inputs[slots.addend];
    args.on.gemm(g);
  }
};

std::size_t product_workspace(kernels::Target target, const kernels::GemmArgs& args, bool library) {
  const bool on_gpu = !kernels::has_prepared_kernels(target);
  return std::max(kernels::workspace_bytes(target, args),
                  on_gpu && library ? kernels::library_workspace_bytes(args) : std::size_t{0});
}

// bf16 as it is on the CPU: a product, its bias and relu. What else would follow it is computed in f32,
// between conversions (engine/ops/prepare_kernel.cpp).
bool stays_bf16(kernels::Target target, DType dtype, const Shape& a, const Shape& b, const ProductSpec& spec,
                bool addend) {
  if (!multiplies_bf16(target, dtype)) return false;
  const auto shape = product_shape(a, b, spec);
  return shape && shape->k > 0 && element_count(shape->y) > 0 && !addend &&
         spec.sums_of == kernels::GemmOperand::none &&
         (spec.activation == kernels::Activation::none || spec.activation == kernels::Activation::relu);
}

// The product of tensors as they lie: dense, or in rows where it is otherwise the one of dense tensors.
Result<kernels::MatMulDesc> stored_desc(const NodeTypes& types, const ProductShape& s,
                                        const ProductSpec& spec) {
  const DType dtype = types.inputs[0].dtype;
  const Shape &a = types.inputs[0].shape, &b = types.inputs[1].shape;
  kernels::MatMulDesc dense = product_desc(dtype, s, a, b, spec);
  if (!has_rows(types)) return dense;
  if (in_rows(types, 0) && of_vectors(s)) return no_kernel("the product of a vector is dense");
  kernels::MatMulDesc desc = product_desc(
      dtype, s, a, b, spec, {input_strides(types, 0), input_strides(types, 1), output_strides(types, 0)});
  if (desc.m != dense.m || desc.batch != dense.batch)
    return no_kernel("in rows it would be more and smaller products than of dense tensors");
  return desc;
}

// Whether the product of what lies in rows is not, bit by bit, the one of dense tensors.
bool in_other_order(const NodeTypes& types, const ProductShape& s, const ProductSpec& spec,
                    const kernels::MatMulDesc& desc, kernels::MatMul& product) {
  if (!asks_for_bits(types) || product.keeps_bits()) return false;
  kernels::MatMulDesc dense = product_desc(desc.dtype, s, types.inputs[0].shape, types.inputs[1].shape, spec);
  dense.bias = desc.bias;
  dense.activation = desc.activation;
  return !product.has_bits_of(*kernels::MatMul::create(dense));
}

// What a launch does beside the product is done with dense tensors.
Status require_plain_product(const NodeTypes& types, const ProductLaunch& launch) {
  if (!has_rows(types)) return {};
  if (launch.matmul ? launch.other_order : !launch.gemm)
    return no_kernel("a product that the processor's library may add in another order where rows lie apart");
  if (launch.sums_of != kernels::GemmOperand::none)
    return no_kernel("sums of an operand are those of a dense one");
  const ProductSlots& slots = launch.slots;
  if (slots.addend >= 0 ||
      (in_rows(types, 0) && (launch.tail || launch.gelu || slots.aux_in >= 0 || slots.aux_out >= 0)))
    return no_kernel("what is added to the product, or made of it, is dense");
  return {};
}

// What is added to the results in place, and from which of the launch's inputs it comes.
Addend tail_of(kernels::Target target, const ProductSpec& spec, const ProductShape& s, const Addend& addend,
               ProductLaunch& launch) {
  Addend tail = addend;
  if (s.k == 0 && launch.bias) {  // nothing to multiply: zeros plus bias
    const Perm axis_of = spec.perm_y.empty() ? Perm{} : inverse(spec.perm_y);
    tail.present = true;
    tail.strides.assign(s.y.size(), 0);
    const std::size_t last = s.p.size() - 1;
    tail.strides[axis_of.empty() ? last : static_cast<std::size_t>(axis_of[last])] = s.n == 1 ? 0 : 1;
  }
  if (launch.slots.addend >= 0 && kernels::has_prepared_kernels(target)) {
    tail = {true, 1, dense_strides(s.y)};
    launch.tail_input = static_cast<std::size_t>(launch.slots.addend);
  }
  return tail;
}

}  // namespace

Result<Kernel> prepare_product(const NodeTypes& types, const ProductSpec& spec, bool bias,
                               const Addend& addend, const ProductSlots& slots) {
  using kernels::Activation;
  const kernels::Target target = types.target;
  const DType dtype = types.inputs[0].dtype;
  const Shape &a = types.inputs[0].shape, &b = types.inputs[1].shape;
  const bool whole = kernels::has_prepared_kernels(target) && is_whole(dtype);
  const bool low = stays_bf16(target, dtype, a, b, spec, addend.present || slots.addend >= 0);
  if (!whole && !low) TRY(require_kernel_type(target, dtype));
  if (whole && (spec.alpha != std::trunc(spec.alpha) || addend.beta != std::trunc(addend.beta)))
    return no_kernel("no kernel multiplies integers by a fraction");
  if (whole && spec.activation != Activation::none)
    return no_kernel("no kernel for an activation of an integer product");
  const ProductShape s = TRY(product_shape(a, b, spec));
  ProductLaunch launch{dtype, element_count(s.y), bias, slots};
  launch.sums_of = spec.sums_of;
  if (launch.count == 0 && spec.sums_of == kernels::GemmOperand::none) return no_work("matmul");
  if (slots.addend >= 0 && s.k == 0) return no_kernel("a product of nothing has no addend");
  const Addend tail = tail_of(target, spec, s, addend, launch);
  const bool relu = spec.activation == Activation::relu;
  if (tail.present) {
    if (s.y.size() > kernels::kEwMaxRank) return no_kernel("no kernel for more than 8 dims");
    launch.tail = std::make_shared<kernels::EwProgram>(addend_program(dtype, s.y, tail, relu));
  }
  const bool on_gpu = !kernels::has_prepared_kernels(target) && s.k > 0 && launch.count > 0;
  if (!on_gpu) launch.gelu = gelu_program(dtype, s.y, spec.activation);
  if (s.k > 0 && launch.count > 0) {
    kernels::MatMulDesc desc = TRY(stored_desc(types, s, spec));
    if (desc.batch.size() > kernels::kEwMaxRank) return no_kernel("no kernel for more than 8 batch dims");
    desc.bias = bias;
    if (on_gpu || relu) desc.activation = relu && tail.present ? Activation::none : spec.activation;
    if (kernels::has_prepared_kernels(target)) TRY(require_countable(desc));
    try {
      if (kernels::has_prepared_kernels(target) && !whole)
        launch.matmul = kernels::MatMul::create(desc);
      else
        launch.gemm = kernels::gemm_args(desc);
      launch.other_order = launch.matmul && in_other_order(types, s, spec, desc, *launch.matmul);
    } catch (const std::exception& e) {
      return Error{Errc::device, e.what()};
    }
  }
  TRY(require_plain_product(types, launch));
  Kernel kernel;
  kernel.name = s.k == 0 || launch.count == 0 ? "matmul empty"
                : launch.matmul               ? "matmul " + launch.matmul->implementation()
                                              : "matmul";
  if (launch.gemm) {
    launch.gemm->sums_of = spec.sums_of;
    if (!whole) launch.workspace_bytes = product_workspace(target, *launch.gemm, types.dnn_library);
  } else {
    if (launch.matmul) launch.workspace_bytes = launch.matmul->workspace_bytes();
    launch.sums = operand_sums(dtype, s, spec.sums_of);
    if (spec.sums_of != kernels::GemmOperand::none)
      launch.workspace_bytes =
          std::max(launch.workspace_bytes, kernels::workspace_bytes(target, launch.sums));
  }
  kernel.workspace_bytes = launch.workspace_bytes;
  for (const auto& program : {launch.tail, launch.gelu})
    if (program) kernel.programs.push_back(program);
  kernel.run = [launch](const LaunchArgs& args) { launch.run(args); };
  return kernel;
}

double product_flops(const ProductShape& s) {
  return 2.0 * static_cast<double>(element_count(s.batch)) * static_cast<double>(s.m) *
         static_cast<double>(s.n) * static_cast<double>(s.k);
}

namespace {

Perm full_perm(const Perm& perm, std::size_t rank) {
  if (!perm.empty()) return perm;
  Perm identity(rank);
  for (std::size_t i = 0; i < rank; ++i) identity[i] = as_dim(i);
  return identity;
}

Perm swapped(Perm perm) {
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return perm;
}

// From the product's layout of an operand back to how it is stored, after `lead` broadcast dims.
Perm stored_perm(const Perm& perm, std::size_t lead) {
  Perm result = full_perm({}, lead);
  for (std::int64_t p : inverse(perm)) result.push_back(p + as_dim(lead));
  return result;
}

void set_perm(Attrs& attrs, const char* name, const Perm& perm) {
  if (!is_identity(perm)) attrs.set(name, perm);
}

ValueId fused_matmul(GraphBuilder& b, ValueId left, const Perm& perm_left, ValueId right,
                     const Perm& perm_right, const Perm& perm_y, double alpha) {
  Attrs attrs;
  set_perm(attrs, "perm_a", perm_left);
  set_perm(attrs, "perm_b", perm_right);
  set_perm(attrs, "perm_y", perm_y);
  if (alpha != 1) attrs.set("alpha", alpha);
  return b.op("FusedMatMul", {left, right}, std::move(attrs));
}

}  // namespace

ProductGradients product_gradients(GradContext& ctx, const ProductSpec& spec, ValueId a, ValueId b,
                                   ValueId dy, bool want_a, bool want_b) {
  ProductGradients grads;
  const std::size_t rank_a = ctx.shape(a).size(), rank_b = ctx.shape(b).size(), rank = ctx.shape(dy).size();
  const Perm perm_a = full_perm(spec.perm_a, rank_a), perm_b = full_perm(spec.perm_b, rank_b);
  const Perm perm_p = inverse(full_perm(spec.perm_y, rank));  // dY seen in the product's layout
  if (want_a)
    grads.a = ctx.reduce_to(
        fused_matmul(ctx.b, dy, perm_p, b, swapped(perm_b), stored_perm(perm_a, rank - rank_a), spec.alpha),
        a);
  if (!want_b) return grads;
  const std::int64_t k = ctx.shape(a).back(), n = ctx.shape(dy).back();
  if (rank_b == 2 && rank_a > 2 && is_identity(perm_a) && is_identity(perm_p) && k > 0 && n > 0) {
    // One weight for all rows: batch and rows are one contracted dim, without a temporary per batch.
    const ValueId flat_a = ctx.b.op("Reshape", {a, ctx.b.i64s({-1, k})});
    const ValueId flat_dy = ctx.b.op("Reshape", {dy, ctx.b.i64s({-1, n})});
    grads.b = fused_matmul(ctx.b, flat_a, {1, 0}, flat_dy, {}, inverse(perm_b), spec.alpha);
    return grads;
  }
  grads.b = ctx.reduce_to(
      fused_matmul(ctx.b, a, swapped(perm_a), dy, perm_p, stored_perm(perm_b, rank - rank_b), spec.alpha), b);
  return grads;
}

Result<SliceProduct> SliceProduct::create(kernels::Target target, const kernels::MatMulDesc& desc,
                                          bool library) {
  SliceProduct product;
  if (kernels::has_prepared_kernels(target)) TRY(require_countable(desc));
  try {
    if (kernels::has_prepared_kernels(target)) {
      product.matmul_ = kernels::MatMul::create(desc);
      product.workspace_bytes_ = product.matmul_->workspace_bytes();
    } else {
      product.gemm_ = kernels::gemm_args(desc);
      product.workspace_bytes_ = product_workspace(target, product.gemm_, library);
    }
  } catch (const std::exception& e) {
    return no_kernel(e.what());
  }
  return product;
}

const void* SliceProduct::packed(const void* b, void* to) const {
  if (packed_bytes() == 0) return b;
  matmul_->pack_b(b, to);
  return to;
}

void SliceProduct::run(const LaunchArgs& args, const void* a, const void* b, void* c, void* workspace,
                       const void* bias) const {
  if (matmul_) return matmul_->run(a, b, bias, c, workspace);
  kernels::GemmArgs gemm = gemm_;
  gemm.a = a;
  gemm.b = b;
  gemm.bias = bias;
  gemm.c = c;
  gemm.workspace = workspace;
  gemm.workspace_bytes = workspace_bytes_;
  args.on.gemm(gemm);
}

const void* elements_at(const void* base, DType dtype, std::int64_t offset) {
  return static_cast<const std::byte*>(base) + offset * static_cast<std::int64_t>(dtype_bytes(dtype));
}
void* elements_at(void* base, DType dtype, std::int64_t offset) {
  return static_cast<std::byte*>(base) + offset * static_cast<std::int64_t>(dtype_bytes(dtype));
}

}  // namespace gradloom
