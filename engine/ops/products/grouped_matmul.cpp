// Products of groups of rows, as the experts of a mixture take the tokens that were sent to them: how many rows a group has is known
// when the step runs, how many there are together when it is planned (JAX ragged_dot, torch.nn.functional.grouped_mm).
//   ends, i64 [groups]: the rows of group g are those from where the group before ends to ends[g]. Smaller ends count as the largest
//   before them, larger ones as `rows`.
// GroupedMatMul(x [rows, k], w [groups, k, n], ends) -> y [rows, n]: y_r = x_r w_g for the rows r of group g, 0 for rows of no group.
//   transposed = 1: w is [groups, n, k].
// GroupedContraction(a [rows, m], b [rows, n], ends) -> c [groups, m, n]: c_g = sum over the rows r of group g of a_r^T b_r, 0 for
//   a group without rows. It is the gradient of w, as GroupedMatMul is that of a and b.
// On the CPU a group is cut into products of 1024, 256, 64 and 16 rows, which were prepared, the last filled up with zeros; on GPUs,
// where the host does not see the ends, it is one kernel (kernels/gpu/grouped_gemm.cu).
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/text.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/products/matrix_product.h"
#include "engine/ops/rows.h"
#include "engine/ops/samples.h"
#include "kernels/library_kernels.h"

namespace gradloom {
namespace {

using kernels::GroupedSum;

// The sizes of either operator: see GroupedGemmArgs.
struct GroupedShape {
  std::int64_t groups = 0, rows = 0, m = 0, n = 0;
  bool transposed = false;  // b, with sums over columns
};

GroupedShape grouped_shape(const NodeTypes& types, GroupedSum sum) {
  const Shape &a = types.inputs[0].shape, &b = types.inputs[1].shape;
  const bool transposed = types.attrs.integer("transposed", 0) != 0;
  const std::int64_t n = sum == GroupedSum::rows ? b[1] : b[transposed ? 1 : 2];
  return {types.inputs[2].shape[0], a[0], a[1], n, transposed};
}

// Files may have anything. `flag`: the attribute that there is, 0 or 1; null: none.
Status check_attributes(const Attrs& attrs, const char* flag) {
  for (const auto& [name, value] : attrs.all()) {
    if (flag == nullptr || name != flag) return infer_error("attribute '" + escaped(name) + "' is not known");
    const auto* const number = std::get_if<std::int64_t>(&value);
    if (number == nullptr || (*number != 0 && *number != 1))
      return infer_error("attribute '" + name + "' must be 0 or 1");
  }
  return {};
}

Status check_groups(const InferContext& ctx, std::size_t rank_b) {
  TRY(check_attributes(ctx.attrs, rank_b == 3 ? "transposed" : nullptr));
  TRY(require_inputs(ctx, 3));
  TRY(require_float(ctx, 0, "the rows"));
  TRY(require_float(ctx, 1, rank_b == 3 ? "the weights" : "the second operand"));
  if (ctx.shape(0).size() != 2 || ctx.shape(1).size() != rank_b)
    return infer_error("operands " + to_string(ctx.shape(0)) + " and " + to_string(ctx.shape(1)) +
                       ", they must have 2 and " + std::to_string(rank_b) + " dims");
  if (ctx.dtype(2) != DType::i64 || ctx.shape(2).size() != 1)
    return infer_error("ends " + to_string(ctx.in(2)) + ", they must be i64 [groups]");
  return {};
}

Status infer_matmul(InferContext& ctx) {
  TRY(check_groups(ctx, 3));
  const Shape &x = ctx.shape(0), &w = ctx.shape(1);
  const bool transposed = ctx.attrs.integer("transposed", 0) != 0;
  if (dims_differ(w[0], ctx.shape(2)[0]))
    return infer_error("weights of " + std::to_string(w[0]) + " groups, ends of " +
                       std::to_string(ctx.shape(2)[0]));
  if (dims_differ(x[1], w[transposed ? 2 : 1]))
    return infer_error("rows of " + std::to_string(x[1]) + " columns, weights " + to_string(w) +
                       (transposed ? ", transposed" : ""));
  return set_outputs(ctx, {{ctx.dtype(0), {x[0], w[transposed ? 1 : 2]}}});
}

Status infer_contraction(InferContext& ctx) {
  TRY(check_groups(ctx, 2));
  const Shape &a = ctx.shape(0), &b = ctx.shape(1);
  if (dims_differ(a[0], b[0]))
    return infer_error(std::to_string(a[0]) + " and " + std::to_string(b[0]) + " rows");
  return set_outputs(ctx, {{ctx.dtype(0), {ctx.shape(2)[0], a[1], b[1]}}});
}

template <GroupedSum sum>
Cost grouped_cost(const NodeTypes& types) {
  const GroupedShape s = grouped_shape(types, sum);
  return cost_of(types,
                 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.m) * static_cast<double>(s.n));
}

Status grad_matmul(GradContext& ctx) {
  const ValueId x = ctx.in(0), w = ctx.in(1), ends = ctx.in(2);
  const bool transposed = ctx.node.attrs.integer("transposed", 0) != 0;
  if (ctx.wants(0))
    ctx.set(0, ctx.b.op("GroupedMatMul", {ctx.grad(), w, ends},
                        {{"transposed", static_cast<std::int64_t>(transposed ? 0 : 1)}}));
  if (ctx.wants(1))
    ctx.set(1, transposed ? ctx.b.op("GroupedContraction", {ctx.grad(), x, ends})
                          : ctx.b.op("GroupedContraction", {x, ctx.grad(), ends}));
  return {};
}

Status grad_contraction(GradContext& ctx) {
  const ValueId a = ctx.in(0), b = ctx.in(1), ends = ctx.in(2);
  if (ctx.wants(0))
    ctx.set(0, ctx.b.op("GroupedMatMul", {b, ctx.grad(), ends}, {{"transposed", std::int64_t{1}}}));
  if (ctx.wants(1)) ctx.set(1, ctx.b.op("GroupedMatMul", {a, ctx.grad(), ends}));
  return {};
}

// ---- the CPU's kernel ------------------------------------------------------------------------------------------------------------

constexpr std::int64_t kPieces[] = {1024, 256, 64, 16};  // rows of a product
constexpr std::int64_t kLeastPiece = 16;

// The products that groups are cut into.
class Pieces {
 public:
  static Result<std::shared_ptr<const Pieces>> create(const NodeTypes& types, GroupedSum sum);
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  void run(const LaunchArgs& args) const;

 private:
  struct Piece {
    std::int64_t rows;
    SliceProduct product, more;  // more: adds to what is there, with sums over rows
  };
  // The operands of one piece from row `row` on, of rows that may be fewer than it takes.
  struct Place {
    const LaunchArgs& args;
    std::int64_t row, rows, group;
    bool begins;  // nothing of the group was added before
  };
  const void* filled(const Place& at, std::size_t input, std::int64_t columns, std::byte* room) const;
  void run_columns(const Piece& piece, const Place& at) const;
  void run_rows(const Piece& piece, const Place& at) const;
  void run_group(const LaunchArgs& args, std::int64_t group, std::int64_t begin, std::int64_t end) const;
  void finish_group(const LaunchArgs& args, std::int64_t group, bool empty) const;
  std::byte* room(const LaunchArgs& args, std::size_t offset) const {
    return static_cast<std::byte*>(args.workspace) + offset;
  }

  GroupedShape shape_;
  GroupedSum sum_ = GroupedSum::columns;
  DType type_ = DType::f32;
  std::vector<Piece> pieces_;                         // largest first
  std::shared_ptr<const kernels::EwProgram> rounds_;  // sums of a group that are f32, to bf16
  // In the workspace: the first piece's rows of either side where a group has fewer, sums, what the products need.
  std::size_t left_ = 0, right_ = 0, sums_ = 0, product_ = 0, workspace_bytes_ = 0;
};

Result<std::shared_ptr<const Pieces>> Pieces::create(const NodeTypes& types, GroupedSum sum) {
  const GroupedShape s = grouped_shape(types, sum);
  const bool wide = multiplies_bf16(types.target, types.inputs[0].dtype);
  auto made = std::make_shared<Pieces>();
  made->shape_ = s;
  made->sum_ = sum;
  made->type_ = types.inputs[0].dtype;
  std::size_t needed = 0;
  for (const std::int64_t rows : kPieces) {
    if (rows > s.rows && rows != kLeastPiece) continue;
    kernels::MatMulDesc desc;
    desc.dtype = made->type_;
    desc.n = s.n;
    desc.c_strides = {s.n, 1};
    if (sum == GroupedSum::columns) {
      desc.m = rows;
      desc.k = s.m;
      desc.a_strides = {s.m, 1};
      desc.b_strides = s.transposed ? std::vector<std::int64_t>{1, s.m} : std::vector<std::int64_t>{s.n, 1};
    } else {
      desc.m = s.m;
      desc.k = rows;
      desc.a_strides = {1, s.m};
      desc.b_strides = {s.n, 1};
      desc.wide_c = wide;
    }
    Piece piece{rows, TRY(SliceProduct::create(types.target, desc)), {}};
    if (sum == GroupedSum::rows) {
      desc.accumulate = true;
      piece.more = TRY(SliceProduct::create(types.target, desc));
    }
    needed = std::max({needed, piece.product.workspace_bytes(), piece.more.workspace_bytes()});
    made->pieces_.push_back(std::move(piece));
  }
  const auto bytes = [&](DType type, std::int64_t rows, std::int64_t columns) {
    return kernels::at_library_boundary(byte_size(Type{type, {rows, columns}}));
  };
  made->right_ = bytes(made->type_, kLeastPiece, s.m);
  made->sums_ = made->right_ + bytes(made->type_, kLeastPiece, s.n);
  made->product_ = made->sums_;
  if (sum == GroupedSum::rows && wide) {
    made->rounds_ = conversion(DType::f32, made->type_, s.m * s.n);
    made->product_ += bytes(DType::f32, s.m, s.n);
  }
  made->workspace_bytes_ = made->product_ + needed;
  return std::shared_ptr<const Pieces>(std::move(made));
}

// The rows of an input from a place on; where they are too few for a product, a copy with zeros behind them.
const void* Pieces::filled(const Place& at, std::size_t input, std::int64_t columns, std::byte* room) const {
  const void* const from = elements_at(at.args.inputs[input], type_, at.row * columns);
  if (at.rows >= kLeastPiece) return from;
  const std::size_t row_bytes = static_cast<std::size_t>(columns) * dtype_bytes(type_);
  const std::size_t given = static_cast<std::size_t>(at.rows) * row_bytes;
  std::memcpy(room, from, given);
  std::memset(room + given, 0, kLeastPiece * row_bytes - given);
  return room;
}

void Pieces::run_columns(const Piece& piece, const Place& at) const {
  const void* const a = filled(at, 0, shape_.m, room(at.args, left_));
  const void* const b = elements_at(at.args.inputs[1], type_, at.group * shape_.m * shape_.n);
  void* const c = elements_at(at.args.outputs[0], type_, at.row * shape_.n);
  const bool whole = at.rows >= kLeastPiece;
  piece.product.run(at.args, a, b, whole ? c : room(at.args, right_), room(at.args, product_));
  if (!whole)
    std::memcpy(c, room(at.args, right_), static_cast<std::size_t>(at.rows * shape_.n) * dtype_bytes(type_));
}

void Pieces::run_rows(const Piece& piece, const Place& at) const {
  const void* const a = filled(at, 0, shape_.m, room(at.args, left_));
  const void* const b = filled(at, 1, shape_.n, room(at.args, right_));
  void* const c =
      rounds_ ? room(at.args, sums_) : elements_at(at.args.outputs[0], type_, at.group * shape_.m * shape_.n);
  (at.begins ? piece.product : piece.more).run(at.args, a, b, c, room(at.args, product_));
}

void Pieces::run_group(const LaunchArgs& args, std::int64_t group, std::int64_t begin,
                       std::int64_t end) const {
  for (std::int64_t row = begin; row < end;) {
    const auto fits = [&](const Piece& piece) {
      return piece.rows <= end - row || piece.rows == kLeastPiece;
    };
    const Piece& piece = *std::find_if(pieces_.begin(), pieces_.end(), fits);
    const Place at{args, row, std::min(piece.rows, end - row), group, row == begin};
    sum_ == GroupedSum::columns ? run_columns(piece, at) : run_rows(piece, at);
    row += at.rows;
  }
}

void Pieces::finish_group(const LaunchArgs& args, std::int64_t group, bool empty) const {
  const std::int64_t count = shape_.m * shape_.n;
  void* c = elements_at(args.outputs[0], type_, group * count);
  if (empty) {
    std::memset(c, 0, static_cast<std::size_t>(count) * dtype_bytes(type_));
  } else if (rounds_) {
    const void* const sums = room(args, sums_);
    args.on.elementwise({rounds_.get(), &sums, &c, nullptr});
  }
}

void Pieces::run(const LaunchArgs& args) const {
  const auto* const ends = static_cast<const std::int64_t*>(args.inputs[2]);
  std::int64_t begin = 0;
  for (std::int64_t group = 0; group < shape_.groups; ++group) {
    const std::int64_t end = std::min(std::max(begin, ends[group]), shape_.rows);
    run_group(args, group, begin, end);
    if (sum_ == GroupedSum::rows) finish_group(args, group, begin == end);
    begin = end;
  }
  if (sum_ == GroupedSum::columns && begin < shape_.rows)
    std::memset(elements_at(args.outputs[0], type_, begin * shape_.n), 0,
                static_cast<std::size_t>((shape_.rows - begin) * shape_.n) * dtype_bytes(type_));
}

// ---- both devices ----------------------------------------------------------------------------------------------------------------

Kernel one_kernel(const NodeTypes& types, GroupedSum sum) {
  const GroupedShape s = grouped_shape(types, sum);
  kernels::GroupedGemmArgs product{};
  product.dtype = types.inputs[0].dtype;
  product.sum = sum;
  product.groups = s.groups;
  product.rows = s.rows;
  product.m = s.m;
  product.n = s.n;
  product.b_row = s.transposed ? 1 : s.n;
  product.b_col = s.transposed ? s.m : 1;
  return {"grouped matmul", 0, [product](const LaunchArgs& args) {
            kernels::GroupedGemmArgs now = product;
            now.a = args.inputs[0];
            now.b = args.inputs[1];
            now.ends = static_cast<const std::int64_t*>(args.inputs[2]);
            now.c = args.outputs[0];
            args.on.grouped_gemm(now);
          }};
}

template <GroupedSum sum>
Result<Kernel> prepare(const NodeTypes& types) {
  const DType type = types.inputs[0].dtype;
  TRY(require_kernel_type(types.target, type, multiplies_bf16(types.target, type)));
  const GroupedShape s = grouped_shape(types, sum);
  if (element_count(types.outputs[0].shape) == 0) return no_work("grouped matmul");
  if (!kernels::has_prepared_kernels(types.target)) return one_kernel(types, sum);
  if (s.m == 0 || s.rows == 0 || s.groups == 0) {
    const std::size_t bytes = byte_size(types.outputs[0]);
    return Kernel{"grouped matmul", 0,
                  [bytes](const LaunchArgs& args) { std::memset(args.outputs[0], 0, bytes); }};
  }
  const std::shared_ptr<const Pieces> pieces = TRY(Pieces::create(types, sum));
  return Kernel{"grouped matmul", pieces->workspace_bytes(),
                [pieces](const LaunchArgs& args) { pieces->run(args); }};
}

constexpr InputRole kEnds[] = {{.input = 2, .use = InputUse::indices, .of = 0}};

SampleInput ends_of(std::vector<double> ends) {
  const Shape shape{as_dim(ends.size())};
  return exact(DType::i64, shape, std::move(ends));
}

std::vector<Sample> matmul_samples() {
  const Attrs transposed{{"transposed", std::int64_t{1}}};
  return {
      sample_of("experts", {}, {floats({9, 3}), floats({4, 3, 5}), ends_of({2, 2, 7, 9})}),
      sample_of("transposed", transposed, {floats({9, 3}), floats({3, 5, 3}), ends_of({4, 5, 9})}),
      sample_of("rows-of-no-group", {}, {floats({7, 4}), floats({3, 4, 2}), ends_of({1, 5, 5})}),
      sample_of("ends-out-of-order", {}, {floats({6, 4}), floats({4, 4, 2}), ends_of({3, 1, -2, 11})}),
      sample_of("pieces", {}, {floats({350, 8}), floats({2, 8, 6}), ends_of({337, 350})}),
      {.name = "mixture",
       .attrs = transposed,
       .inputs = {floats({2048, 512}), floats({8, 1024, 512}),
                  ends_of({217, 503, 741, 1022, 1290, 1511, 1804, 2048})},
       .bench = true},
  };
}

std::vector<Sample> contraction_samples() {
  return {
      sample_of("experts", {}, {floats({9, 3}), floats({9, 5}), ends_of({2, 2, 7, 9})}),
      sample_of("rows-of-no-group", {}, {floats({7, 4}), floats({7, 2}), ends_of({1, 5, 5})}),
      sample_of("pieces", {}, {floats({350, 8}), floats({350, 6}), ends_of({337, 350})}),
      {.name = "mixture",
       .inputs = {floats({2048, 1024}), floats({2048, 512}),
                  ends_of({217, 503, 741, 1022, 1290, 1511, 1804, 2048})},
       .bench = true},
  };
}

}  // namespace

const OpDef grouped_matmul_op = {
    .name = "GroupedMatMul",
    .domain = "gradloom",
    .summary = "Rows in groups, each group times a matrix of its own: the experts of a mixture.",
    .traits = kOfFiles,
    .min_inputs = 3,
    .max_inputs = 3,
    .infer = infer_matmul,
    .grad = grad_matmul,
    .cost = grouped_cost<GroupedSum::columns>,
    .cpu = prepare<GroupedSum::columns>,
    .gpu = prepare<GroupedSum::columns>,
    .samples = matmul_samples,
    .precision = Precision::low,
    .roles = kEnds,
    .arithmetic = Arithmetic::products,
};

const OpDef grouped_contraction_op = {
    .name = "GroupedContraction",
    .domain = "gradloom",
    .summary =
        "For each group of rows the product of two operands over them: the gradient of GroupedMatMul's weights.",
    .traits = kOfFiles,
    .min_inputs = 3,
    .max_inputs = 3,
    .infer = infer_contraction,
    .grad = grad_contraction,
    .cost = grouped_cost<GroupedSum::rows>,
    .cpu = prepare<GroupedSum::rows>,
    .gpu = prepare<GroupedSum::rows>,
    .samples = contraction_samples,
    .precision = Precision::low,
    .roles = kEnds,
    .arithmetic = Arithmetic::products,
};

}  // namespace gradloom
