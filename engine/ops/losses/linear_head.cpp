#include "engine/ops/losses/linear_head.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/ops/kernel_sequence.h"
#include "engine/ops/micro_batches.h"
#include "engine/ops/preparation.h"
#include "engine/ops/products/matrix_product.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using Program = std::shared_ptr<const kernels::EwProgram>;

// The kernels of a chunk of so many rows.
struct Chunk {
  std::int64_t rows = 0;
  SliceProduct logits;
  std::optional<SliceProduct> dx, first_dw, more_dw;  // dw: that writes, that adds
  std::optional<SliceProduct> rest_of_dx;  // dx in parts: of the classes behind them, added to the first
  Kernel sum_of_dx;                        // [parts, rows, k] -> [rows, k] in f32
  Program narrow_dx;                       // that as dx
  Program narrow;  // the gradient of the logits, as products read it; null: they read it as it is
  Kernel column_sums;
};

// Where things lie in the workspace, in bytes.
struct Places {
  std::size_t logits = 0, narrow = 0, x = 0, dx = 0, dw = 0, dbias_parts = 0, row_losses = 0;
  std::size_t log_sum_exp = 0, spare = 0, total = 0, factor = 0, kept = 0, kept_labels = 0, row_scores = 0,
              inner = 0;
};
constexpr std::size_t kRowScores = 3;  // numbers of scores and their gradients of a selected row

struct Prepared {
  LinearHead head;
  Chunk whole;
  std::optional<Chunk> rest;  // what is left after whole chunks
  Kernel totals, finish, dbias;
  Program narrow_dw;
  Program begin;  // of an accumulator, where the host does not see micro
  Places at;
  std::size_t bytes = 0, inner_bytes = 0;
};

std::size_t bytes(DType type, std::int64_t count) {
  return static_cast<std::size_t>(count) * dtype_bytes(type);
}

// Inputs and outputs of a sequence, all present.
NodeTypes sequence_types(const LinearHead& head, std::vector<Type> inputs, std::vector<Type> outputs) {
  NodeTypes types;
  types.input_present.assign(inputs.size(), true);
  types.output_present.assign(outputs.size(), true);
  types.constants.assign(inputs.size(), nullptr);
  types.inputs = std::move(inputs);
  types.outputs = std::move(outputs);
  types.target = head.target;
  return types;
}

// labels (, class weight) (, dloss) -> what the labels' weights sum up to (, dloss over it).
Result<Kernel> totals_kernel(const LinearHead& head) {
  const Type scalar{head.sums, {}};
  std::vector<Type> inputs = {{head.labels, {head.n}}}, outputs = {scalar};
  if (head.weight) inputs.push_back({head.sums, {head.classes}});
  if (head.gradients()) inputs.push_back(scalar);
  if (head.gradients()) outputs.push_back(scalar);
  const NodeTypes types = sequence_types(head, inputs, outputs);
  KernelSequence s(types);
  const auto label = [&](double value) { return s.b().scalar(head.labels, value); };
  const ValueId labels = s.in(0);
  ValueId counts = s.op("And", {s.op("GreaterOrEqual", {labels, label(0)}),
                                s.op("Less", {labels, label(static_cast<double>(head.classes))})});
  if (head.has_ignore)
    counts =
        s.op("And",
             {counts, s.op("Not", {s.op("Equal", {labels, label(static_cast<double>(head.ignore_index))})})});
  ValueId weights = s.cast(counts, head.sums);
  if (head.weight)
    weights = s.op("Mul", {weights, s.op("Gather", {s.in(1), s.op("Where", {counts, labels, label(0)})})});
  const ValueId total = s.op("ReduceSum", {weights, s.b().i64s({0})}, {{"keepdims", std::int64_t{0}}});
  std::vector<ValueId> results = {total};
  if (head.gradients()) results.push_back(s.op("Div", {s.in(inputs.size() - 1), total}));
  return s.prepare("totals", results);
}

// losses of the rows, total -> loss.
Result<Kernel> finish_kernel(const LinearHead& head) {
  const NodeTypes types = sequence_types(head, {{head.sums, {head.n}}, {head.sums, {}}}, {{head.sums, {}}});
  KernelSequence s(types);
  const ValueId sum = s.op("ReduceSum", {s.in(0), s.b().i64s({0})}, {{"keepdims", std::int64_t{0}}});
  return s.prepare("finish", {head.mean ? s.op("Div", {sum, s.in(1)}) : sum});
}

// [rows, pitch] of one type -> the first `columns` sums, of another type. What lies between the rows is summed up in columns of its own.
Result<Kernel> column_sums_kernel(const LinearHead& head, std::int64_t rows, std::int64_t columns, DType from,
                                  DType to) {
  const NodeTypes types = sequence_types(head, {{from, {rows, head.pitch()}}}, {{to, {columns}}});
  KernelSequence s(types);
  ValueId sum = s.op("ReduceSum", {s.in(0), s.b().i64s({0})}, {{"keepdims", std::int64_t{0}}});
  if (columns < head.pitch()) sum = s.op("Slice", {sum, s.b().i64s({0}), s.b().i64s({columns})});
  return s.prepare("column_sums", {from == to ? sum : s.cast(sum, to)});
}

kernels::MatMulDesc product_desc(const LinearHead& head, std::int64_t m, std::int64_t n, std::int64_t k) {
  kernels::MatMulDesc desc;
  desc.dtype = head.type;
  desc.m = m;
  desc.n = n;
  desc.k = k;
  return desc;
}

// On the CPU dx, of few rows and columns and of many classes, is made as sums of so many parts of the classes in f32: pieces of those, whole,
// copy less than pieces of its rows and columns (512 x 768 of 50257 classes: 1.28 times as fast). They lie where the logits were, which
// nothing reads any more when their gradient is there in 16 bits; their sum follows.
constexpr std::int64_t kDxParts = 16;

// The classes of a part; 0: dx is one product.
std::int64_t dx_part(const LinearHead& head) {
  constexpr std::int64_t kLeast = 1024, kStep = 32;
  const std::int64_t part = head.classes / kDxParts / kStep * kStep;
  return head.scores != head.type && part >= kLeast && (kDxParts + 1) * head.k <= head.classes ? part : 0;
}

Status add_dx(const LinearHead& head, Chunk& chunk) {
  const std::int64_t rows = chunk.rows, k = head.k, part = dx_part(head);
  kernels::MatMulDesc dx = product_desc(head, rows, k, head.classes);
  dx.a_strides = {head.pitch(), 1};
  dx.b_strides =
      head.transposed ? std::vector<std::int64_t>{k, 1} : std::vector<std::int64_t>{1, head.classes};
  dx.c_strides = {k, 1};
  if (part == 0) {
    chunk.dx = TRY(SliceProduct::create(head.target, dx, head.library));
    return {};
  }
  dx.wide_c = true;
  if (dx.k = head.classes - kDxParts * part; dx.k > 0) {
    dx.accumulate = true;
    chunk.rest_of_dx = TRY(SliceProduct::create(head.target, dx, head.library));
  }
  dx.k = part;
  dx.accumulate = false;
  dx.batch = {kDxParts};
  dx.a_strides.insert(dx.a_strides.begin(), part);
  dx.b_strides.insert(dx.b_strides.begin(), head.transposed ? part * k : part);
  dx.c_strides.insert(dx.c_strides.begin(), rows * k);
  chunk.dx = TRY(SliceProduct::create(head.target, dx, head.library));
  const NodeTypes types =
      sequence_types(head, {{DType::f32, {kDxParts, rows * k}}}, {{DType::f32, {rows * k}}});
  KernelSequence s(types);
  const ValueId sum = s.op("ReduceSum", {s.in(0), s.b().i64s({0})}, {{"keepdims", std::int64_t{0}}});
  chunk.sum_of_dx = TRY(s.prepare("sum_of_dx", {sum}));
  chunk.narrow_dx = conversion(DType::f32, head.type, rows * k);
  return {};
}

Result<Chunk> chunk_of(const LinearHead& head, std::int64_t rows) {
  const std::int64_t k = head.k, classes = head.classes, pitch = head.pitch();
  Chunk chunk;
  chunk.rows = rows;
  kernels::MatMulDesc logits = product_desc(head, rows, classes, k);
  logits.a_strides = {k, 1};
  logits.b_strides =
      head.transposed ? std::vector<std::int64_t>{1, k} : std::vector<std::int64_t>{classes, 1};
  logits.c_strides = {pitch, 1};
  logits.bias = head.bias;
  logits.wide_c = head.scores != head.type;
  chunk.logits = TRY(SliceProduct::create(head.target, logits, head.library));
  if (head.gradients() && head.scores != head.type)
    chunk.narrow = conversion(head.scores, head.type, rows * pitch);
  if (head.want_dx) TRY(add_dx(head, chunk));
  if (head.want_dw) {
    kernels::MatMulDesc dw =
        head.transposed ? product_desc(head, classes, k, rows) : product_desc(head, k, classes, rows);
    dw.a_strides = {1, head.transposed ? pitch : k};
    dw.b_strides = {head.transposed ? k : pitch, 1};
    dw.c_strides = {head.transposed ? k : classes, 1};
    dw.wide_c = head.sums != head.type;
    if (head.micro_batches > 0) dw.alpha = 1 / static_cast<double>(head.micro_batches);
    chunk.first_dw = TRY(SliceProduct::create(head.target, dw, head.library));
    dw.accumulate = true;
    if (rows < head.n || head.micro_batches > 0)
      chunk.more_dw = TRY(SliceProduct::create(head.target, dw, head.library));
  }
  if (head.want_dbias) chunk.column_sums = TRY(column_sums_kernel(head, rows, pitch, head.scores, head.sums));
  return chunk;
}

// What the arguments of the loss and of its gradient have in common.
template <class Args>
Args loss_args(const LinearHead& head, std::int64_t rows) {
  Args args{};
  args.dtype = head.scores;
  args.label_dtype = head.labels;
  args.reduction = kernels::LossReduction::none;
  args.outer = rows;
  args.n = head.own;
  args.inner = 1;
  args.has_ignore = head.has_ignore;
  args.ignore_index = head.ignore_index;
  args.losses = head.sums;
  args.pitch = head.pitch();
  return args;
}

// Whether rows that add nothing can be left out: the host sees which they are. Of a part of the classes only those that are ignored, for
// others' labels may be those of other ranks.
bool selects_rows(const LinearHead& head) {
  return (head.parts == 0 || head.has_ignore) && kernels::shares_host_memory(head.target);
}

void lay_out(Prepared& p) {
  const LinearHead& head = p.head;
  const auto take = [&p](std::size_t size) { return std::exchange(p.bytes, p.bytes + aligned_bytes(size)); };
  const std::int64_t logits = head.rows * head.pitch(), w = head.k * head.classes, row = head.rows * head.k;
  p.at.logits = take(bytes(head.scores, logits));
  if (p.whole.narrow) p.at.narrow = take(bytes(head.type, logits));
  if (head.want_dw && head.dw_type() != head.sums) p.at.dw = take(bytes(head.sums, w));
  if (head.want_dbias) p.at.dbias_parts = take(bytes(head.sums, head.chunks() * head.pitch()));
  p.at.row_losses = take(bytes(head.sums, head.n));
  p.at.log_sum_exp = take(bytes(head.sums, head.rows));
  for (std::size_t* scalar : {&p.at.spare, &p.at.total, &p.at.factor}) *scalar = take(sizeof(double));
  if (selects_rows(head)) {
    if (head.parts > 0) p.at.row_scores = take(kRowScores * bytes(head.sums, head.rows));
    p.at.x = take(bytes(head.type, row));
    if (head.want_dx) p.at.dx = take(bytes(head.type, row));
    p.at.kept = take(bytes(DType::i64, head.n));
    p.at.kept_labels = take(bytes(head.labels, head.n));
  }
  p.bytes = kernels::library_place(head.target, p.bytes);
  p.at.inner = p.bytes;
  const auto inner = [&p](std::size_t size) { p.inner_bytes = std::max(p.inner_bytes, size); };
  for (const Kernel* kernel : {&p.totals, &p.finish, &p.dbias}) inner(kernel->workspace_bytes);
  for (const Chunk* chunk : {&p.whole, p.rest ? &*p.rest : nullptr}) {
    if (chunk == nullptr) continue;
    inner(chunk->logits.workspace_bytes());
    for (const auto* product : {&chunk->dx, &chunk->rest_of_dx, &chunk->first_dw, &chunk->more_dw})
      if (*product) inner((*product)->workspace_bytes());
    inner(chunk->column_sums.workspace_bytes);
    inner(chunk->sum_of_dx.workspace_bytes);
    inner(kernels::workspace_bytes(head.target,
                                   loss_args<kernels::SoftmaxCrossEntropyArgs>(head, chunk->rows)));
  }
  p.bytes += aligned_bytes(p.inner_bytes);
}

// ---- running --------------------------------------------------------------------------------------------------

// One launch: its pointers, and which rows it computes.
class Run {
 public:
  Run(const Prepared& p, const LaunchArgs& args) : p_(p), head_(p.head), args_(args) {
    x_ = args.inputs[head_.first];
    w_ = args.inputs[head_.first + 1];
    bias_ = head_.bias ? args.inputs[head_.first + 2] : nullptr;
    labels_ = args.inputs[head_.first + 3];
    weight_ = head_.weight ? args.inputs[head_.first + 4] : nullptr;
    dw_ = !head_.want_dw ? nullptr : head_.dw_type() == head_.sums ? output(2) : place(p.at.dw);
  }

  void operator()() {
    if (head_.parts == 0)
      totals();
    else if (!head_.gradients())
      clear_scores();
    begin();
    select();
    for (std::int64_t row = 0; row < count_; row += head_.rows) {
      const bool part = count_ - row < head_.rows;
      chunk(part && !selected_ ? *p_.rest : p_.whole, row, std::min(head_.rows, count_ - row));
    }
    if (count_ == 0 && head_.want_dw && !adds_)
      std::memset(dw_, 0, bytes(head_.sums, head_.k * head_.classes));
    if (head_.want_dw && p_.narrow_dw) convert(p_.narrow_dw, dw_, output(2));
    if (head_.want_dbias) call(p_.dbias, {place(p_.at.dbias_parts)}, {output(3)});
    if (head_.want_loss) call(p_.finish, {place(p_.at.row_losses), place(p_.at.total)}, {args_.outputs[0]});
  }

 private:
  void* place(std::size_t at) const { return static_cast<std::byte*>(args_.workspace) + at; }
  void* inner() const { return place(p_.at.inner); }
  // Of loss, dx, dw, dbias; a part of the classes has no loss.
  void* output(std::size_t i) const { return args_.outputs[head_.parts > 0 ? i - 1 : i]; }
  // Of scores or their gradients: where those of rows from `row` on are, in line `number`.
  std::int64_t line(std::int64_t number, std::int64_t row) const { return number * head_.n + row; }
  void clear_scores() const {
    const double zero = 0;  // all bits zero in every type
    args_.on.fill({dtype_bytes(head_.sums), (head_.parts + 1) * head_.n, &zero, args_.outputs[0]});
  }
  // Numbers of rows from `row` on in a line of scores: where they are, or, of selected rows, the i-th kind of them together.
  void* row_scores(std::size_t i) const {
    return elements_at(place(p_.at.row_scores), head_.sums, static_cast<std::int64_t>(i) * head_.rows);
  }
  const void* read_scores(const void* scores, std::int64_t number, std::int64_t row, std::int64_t rows,
                          std::size_t i) const {
    if (!selected_) return elements_at(scores, head_.sums, line(number, row));
    for (std::int64_t r = 0; r < rows; ++r)
      std::memcpy(elements_at(row_scores(i), head_.sums, r),
                  elements_at(scores, head_.sums, line(number, kept(row)[r])), dtype_bytes(head_.sums));
    return row_scores(i);
  }
  void write_scores(std::int64_t number, std::int64_t row, std::int64_t rows, std::size_t i) const {
    for (std::int64_t r = 0; selected_ && r < rows; ++r)
      std::memcpy(elements_at(args_.outputs[0], head_.sums, line(number, kept(row)[r])),
                  elements_at(row_scores(i), head_.sums, r), dtype_bytes(head_.sums));
  }

  // What dw is added to: nothing, or the accumulator.
  void begin() {
    if (head_.micro_batches == 0) return;
    if (p_.begin) {
      args_.on.elementwise({p_.begin.get(), args_.inputs, &dw_, nullptr});
      adds_ = true;
      return;
    }
    if (dw_ != args_.inputs[0])  // not in a plan
      std::memcpy(dw_, args_.inputs[0], bytes(head_.sums, head_.k * head_.classes));
    adds_ = *static_cast<const std::int64_t*>(args_.inputs[1]) != 0;
  }
  // Of the loss, or of scores.
  const void* upstream() const { return args_.inputs[head_.first - 1]; }

  void call(const Kernel& kernel, std::initializer_list<const void*> in,
            std::initializer_list<void*> out) const {
    kernel.run({in.begin(), out.begin(), inner(), args_.random, args_.on});
  }
  void convert(const Program& program, const void* from, void* to) const {
    args_.on.elementwise({program.get(), &from, &to, nullptr});
  }

  void totals() const {
    const void* in[3] = {labels_};
    std::size_t count = 1;
    if (head_.weight) in[count++] = weight_;
    if (head_.gradients()) in[count] = upstream();
    void* out[2] = {place(p_.at.total), place(p_.at.factor)};
    p_.totals.run({in, out, inner(), args_.random, args_.on});
  }

  // Leaves out the rows that add nothing, where there are any.
  void select() {
    count_ = head_.n;
    if (!selects_rows(head_)) return;
    const std::int64_t found =
        head_.labels == DType::i32 ? find_rows<std::int32_t>() : find_rows<std::int64_t>();
    if (found == head_.n) return;
    selected_ = true;
    count_ = found;
    auto* const losses = static_cast<std::byte*>(place(p_.at.row_losses));
    std::memset(losses + bytes(head_.sums, found), 0, bytes(head_.sums, head_.n - found));
    if (head_.want_dx) std::memset(output(1), 0, bytes(head_.type, head_.n * head_.k));
    if (head_.want_dbias)
      std::memset(place(p_.at.dbias_parts), 0, bytes(head_.sums, head_.chunks() * head_.pitch()));
  }

  template <class Label>
  std::int64_t find_rows() const {
    const auto* const labels = static_cast<const Label*>(labels_);
    auto* const kept = static_cast<std::int64_t*>(place(p_.at.kept));
    auto* const kept_labels = static_cast<Label*>(place(p_.at.kept_labels));
    std::int64_t found = 0;
    for (std::int64_t row = 0; row < head_.n; ++row) {
      const std::int64_t label = labels[row];
      if (head_.has_ignore && label == head_.ignore_index) continue;
      if (head_.parts == 0 && (label < 0 || label >= head_.classes)) continue;
      kept[found] = row;
      kept_labels[found++] = labels[row];
    }
    return found;
  }

  // Row `row` of x, or of what was selected.
  const std::int64_t* kept(std::int64_t row) const {
    return static_cast<const std::int64_t*>(place(p_.at.kept)) + row;
  }

  const void* rows_of_x(std::int64_t row, std::int64_t rows) const {
    if (!selected_) return elements_at(x_, head_.type, row * head_.k);
    const std::size_t size = bytes(head_.type, head_.k);
    auto* const to = static_cast<std::byte*>(place(p_.at.x));
    for (std::int64_t r = 0; r < rows; ++r)
      std::memcpy(to + static_cast<std::size_t>(r) * size,
                  elements_at(x_, head_.type, kept(row)[r] * head_.k), size);
    const auto used = static_cast<std::size_t>(rows) * size;
    std::memset(to + used, 0, static_cast<std::size_t>(head_.rows) * size - used);
    return to;
  }

  // `rows` of the chunk's rows, from `row` on, are there; the others, of a chunk that is not full, add 0.
  void chunk(const Chunk& c, std::int64_t row, std::int64_t rows) const {
    const void* const x = rows_of_x(row, rows);
    void* const logits = place(p_.at.logits);
    c.logits.run(args_, x, w_, logits, inner(), bias_);
    if (head_.parts > 0)
      part_scores(row, rows, logits);
    else
      losses(row, rows, logits);
    if (!head_.gradients()) return;
    if (rows < c.rows)
      std::memset(elements_at(logits, head_.scores, rows * head_.pitch()), 0,
                  bytes(head_.scores, (c.rows - rows) * head_.pitch()));
    gradients(c, row, rows, x, logits);
  }

  // The losses of the rows, and the gradients of their logits in place.
  void losses(std::int64_t row, std::int64_t rows, void* logits) const {
    auto loss = loss_args<kernels::SoftmaxCrossEntropyArgs>(head_, rows);
    loss.logits = logits;
    loss.labels = elements_at(selected_ ? place(p_.at.kept_labels) : labels_, head_.labels, row);
    loss.weight = weight_;
    loss.loss = elements_at(place(p_.at.row_losses), head_.sums, row);
    loss.log_sum_exp = place(p_.at.log_sum_exp);
    loss.workspace = inner();
    if (head_.gradients()) {
      loss.dloss = head_.mean ? place(p_.at.factor) : upstream();
      loss.dlogits = logits;
    } else {
      loss.total_weight = place(p_.at.spare);
    }
    args_.on.softmax_cross_entropy(loss);
  }

  // The scores of the rows, or the gradients of their logits in place.
  void part_scores(std::int64_t row, std::int64_t rows, void* logits) const {
    const void* const labels = elements_at(selected_ ? place(p_.at.kept_labels) : labels_, head_.labels, row);
    const std::int64_t own = head_.number, target = head_.parts;  // lines
    if (!head_.gradients()) {
      auto loss = loss_args<kernels::SoftmaxCrossEntropyArgs>(head_, rows);
      const auto to = [&](std::int64_t number, std::size_t i) {
        return selected_ ? row_scores(i) : elements_at(args_.outputs[0], head_.sums, line(number, row));
      };
      loss.logits = logits;
      loss.labels = labels;
      loss.log_sum_exp = to(own, 0);
      loss.targets = to(target, 1);
      loss.workspace = inner();
      args_.on.softmax_cross_entropy(loss);
      write_scores(own, row, rows, 0);
      return write_scores(target, row, rows, 1);
    }
    auto grad = loss_args<kernels::SoftmaxCrossEntropyGradArgs>(head_, rows);
    grad.dloss = read_scores(upstream(), own, row, rows, 0);
    grad.dtargets = read_scores(upstream(), target, row, rows, 1);
    grad.logits = logits;
    grad.labels = labels;
    grad.log_sum_exp = read_scores(args_.inputs[head_.first + 4], own, row, rows, 2);
    grad.dlogits = logits;
    args_.on.softmax_cross_entropy_grad(grad);
  }

  // From the gradient of the logits.
  void make_dx(const Chunk& c, const void* slopes, void* dx) const {
    const std::int64_t part = dx_part(head_);
    if (part == 0) return c.dx->run(args_, slopes, w_, dx, inner());
    void* const parts = place(p_.at.logits);
    c.dx->run(args_, slopes, w_, parts, inner());
    if (c.rest_of_dx) {
      const std::int64_t behind = kDxParts * part;
      const void* const w = elements_at(w_, head_.type, head_.transposed ? behind * head_.k : behind);
      c.rest_of_dx->run(args_, elements_at(slopes, head_.type, behind), w, parts, inner());
    }
    void* const sum = elements_at(parts, DType::f32, kDxParts * c.rows * head_.k);
    call(c.sum_of_dx, {parts}, {sum});
    convert(c.narrow_dx, sum, dx);
  }

  void gradients(const Chunk& c, std::int64_t row, std::int64_t rows, const void* x,
                 const void* logits) const {
    if (head_.want_dbias)
      call(c.column_sums, {logits},
           {elements_at(place(p_.at.dbias_parts), head_.sums, row / head_.rows * head_.pitch())});
    if (c.narrow) {
      convert(c.narrow, logits, place(p_.at.narrow));
      logits = place(p_.at.narrow);
    }
    if (head_.want_dx) {
      void* const dx = selected_ ? place(p_.at.dx) : elements_at(output(1), head_.type, row * head_.k);
      make_dx(c, logits, dx);
      for (std::int64_t r = 0; selected_ && r < rows; ++r)
        std::memcpy(elements_at(output(1), head_.type, kept(row)[r] * head_.k),
                    elements_at(dx, head_.type, r * head_.k), bytes(head_.type, head_.k));
    }
    if (!head_.want_dw) return;
    const SliceProduct& product = row == 0 && !adds_ ? *c.first_dw : *c.more_dw;
    const void* const left = head_.transposed ? logits : x;
    const void* const right = head_.transposed ? x : logits;
    product.run(args_, left, right, dw_, inner());
  }

  const Prepared& p_;
  const LinearHead& head_;
  const LaunchArgs& args_;
  const void *x_, *w_, *bias_, *labels_, *weight_;
  void* dw_;  // in `sums`
  std::int64_t count_ = 0;
  bool selected_ = false;
  bool adds_ = false;  // dw holds something before the first chunk
};

void add_programs(const Prepared& p, Kernel& kernel) {
  const auto add = [&](const Program& program) {
    if (program) kernel.programs.push_back(program);
  };
  const auto add_all = [&](const Kernel& part) {
    for (const Program& program : part.programs) add(program);
  };
  for (const Kernel* part : {&p.totals, &p.finish, &p.dbias}) add_all(*part);
  for (const Program& program : {p.narrow_dw, p.begin}) add(program);
  for (const Chunk* chunk : {&p.whole, p.rest ? &*p.rest : nullptr}) {
    if (chunk == nullptr) continue;
    add(chunk->narrow);
    add(chunk->narrow_dx);
    add_all(chunk->column_sums);
    add_all(chunk->sum_of_dx);
  }
}

}  // namespace

std::int64_t chunk_rows(std::int64_t n, std::int64_t classes, std::int64_t bytes) {
  const std::int64_t most = std::max<std::int64_t>(16, bytes / 4 / std::max<std::int64_t>(1, classes));
  const std::int64_t chunks = std::max<std::int64_t>(1, (n + most - 1) / most);
  return std::max<std::int64_t>(16, ((n + chunks - 1) / chunks + 15) / 16 * 16);
}

Result<Kernel> prepare_linear_head(const std::string& name, const LinearHead& head) {
  auto p = std::make_shared<Prepared>();
  p->head = head;
  p->whole = TRY(chunk_of(head, head.rows));
  if (head.n % head.rows != 0) p->rest = TRY(chunk_of(head, head.n % head.rows));
  if (head.parts == 0) {
    p->totals = TRY(totals_kernel(head));
    p->finish = TRY(finish_kernel(head));
  }
  if (head.want_dbias)
    p->dbias = TRY(column_sums_kernel(head, head.chunks(), head.classes, head.sums, head.gradient));
  if (head.want_dw && head.dw_type() != head.sums)
    p->narrow_dw = conversion(head.sums, head.dw_type(), head.k * head.classes);
  if (head.micro_batches > 0 && !kernels::shares_host_memory(head.target))
    p->begin = accumulator_or_zero({head.sums, {head.k * head.classes}});
  lay_out(*p);
  Kernel kernel;
  kernel.name = name + " (" + std::to_string(head.chunks()) + " x " + std::to_string(head.rows) + " rows)";
  kernel.workspace_bytes = p->bytes;
  add_programs(*p, kernel);
  kernel.run = [shared = std::shared_ptr<const Prepared>(p)](const LaunchArgs& args) {
    Run(*shared, args)();
  };
  return kernel;
}

}  // namespace gradloom
