// Resample(x, begin, index, weight) (ours), attribute axis: y[.., j, ..] = sum over e in [begin[j], begin[j +
// 1]) of weight[e] * x[.., index[e], ..]. begin: i32 [out + 1], index: i32, weight: f64, all known when
// planning. The gradient of Resize and of Pad.
#include "engine/ops/resample.h"

#include <algorithm>
#include <numeric>

#include "engine/ops/known.h"
#include "engine/ops/nn.h"

namespace gradloom::resampling {

bool AxisTable::selects() const {
  for (std::size_t j = 0; j < begin.size(); ++j)
    if (begin[j] != static_cast<std::int32_t>(j)) return false;
  return std::all_of(weight.begin(), weight.end(), [](double w) { return w == 1; });
}

bool AxisTable::identity() const {
  if (in != out() || !selects()) return false;
  for (std::size_t j = 0; j < index.size(); ++j)
    if (index[j] != static_cast<std::int32_t>(j)) return false;
  return true;
}

AxisTable AxisTable::transposed() const {
  AxisTable table;
  table.in = out();
  table.begin.assign(static_cast<std::size_t>(in) + 1, 0);
  for (const std::int32_t at : index) ++table.begin[static_cast<std::size_t>(at) + 1];
  for (std::size_t j = 1; j < table.begin.size(); ++j) table.begin[j] += table.begin[j - 1];
  table.index.resize(index.size());
  table.weight.resize(index.size());
  std::vector<std::int32_t> next(table.begin.begin(), table.begin.end() - 1);
  for (std::size_t j = 0; j + 1 < begin.size(); ++j)
    for (auto e = static_cast<std::size_t>(begin[j]); e < static_cast<std::size_t>(begin[j + 1]); ++e) {
      const auto to = static_cast<std::size_t>(next[static_cast<std::size_t>(index[e])]++);
      table.index[to] = static_cast<std::int32_t>(j);
      table.weight[to] = weight[e];
    }
  return table;
}

namespace {

// Axes that change, in the order to go through them: the smallest result first, and equal ones so that the
// last axis, whose elements are mixed one by one, has the least to do.
std::vector<std::size_t> order_of(const Tables& tables) {
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < tables.size(); ++d)
    if (tables[d] && !tables[d]->identity()) order.push_back(d);
  const auto growth = [&](std::size_t d) {
    return static_cast<double>(tables[d]->out()) /
           static_cast<double>(std::max<std::int64_t>(tables[d]->in, 1));
  };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (growth(a) != growth(b)) return growth(a) < growth(b);
    return growth(a) > 1 ? a > b : a < b;
  });
  return order;
}

// One axis of one pass; offsets into the known bytes.
struct Axis {
  bool selects;
  AxisView view;  // of the pass's input
  std::int64_t out;
  std::size_t begin, index, weight;
};

struct Slab {
  kernels::StridedCopyArgs args;
  std::int64_t offset;  // bytes
};

// Runs of positions that are outside, as copies of one value.
Result<std::vector<Slab>> slabs_of(const Outside& outside, const Type& y) {
  std::vector<Slab> slabs;
  const std::vector<std::int64_t> strides = dense_strides(y.shape);
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(y.dtype));
  for (std::size_t d = 0; d < outside.rows.size(); ++d)
    for (std::size_t j = 0; j < outside.rows[d].size(); ++j) {
      if (!outside.rows[d][j]) continue;
      std::size_t end = j;
      while (end < outside.rows[d].size() && outside.rows[d][end]) ++end;
      CopyPlan plan{y.shape, std::vector<std::int64_t>(y.shape.size(), 0), strides};
      plan.dims[d] = static_cast<std::int64_t>(end - j);
      slabs.push_back({TRY(strided_copy_args(plan, static_cast<std::size_t>(bytes))),
                       static_cast<std::int64_t>(j) * strides[d] * bytes});
      j = end;
    }
  return slabs;
}

struct Prepared {
  DType dtype;
  std::vector<Axis> axes;
  std::vector<Slab> slabs;
  KnownBytes known;
  std::size_t value = 0, buffers[2] = {};  // in the known bytes; starts in the workspace
  std::int64_t count = 0;                  // elements of x
};

void run(const Prepared& p, const LaunchArgs& launch) {
  char* const workspace = static_cast<char*>(launch.workspace);
  const char* const known = p.known.place(launch.on, workspace);
  const void* from = launch.inputs[0];
  for (std::size_t i = 0; i < p.axes.size(); ++i) {
    const Axis& a = p.axes[i];
    void* const to = i + 1 == p.axes.size() ? launch.outputs[0] : workspace + p.buffers[i % 2];
    const auto* const index = reinterpret_cast<const std::int32_t*>(known + a.index);
    if (a.selects)
      launch.on.gather({dtype_bytes(p.dtype), DType::i32, a.view.outer, a.view.size, a.view.inner, a.out,
                        from, index, to});
    else
      launch.on.resample({p.dtype, a.view.outer, a.view.size, a.out, a.view.inner,
                          reinterpret_cast<const std::int32_t*>(known + a.begin), index,
                          reinterpret_cast<const double*>(known + a.weight), from, to});
    from = to;
  }
  if (p.axes.empty()) copy_elements(launch.on, p.dtype, p.count, from, launch.outputs[0]);
  for (const Slab& slab : p.slabs) {
    kernels::StridedCopyArgs args = slab.args;
    args.in = known + p.value;
    args.out = static_cast<char*>(launch.outputs[0]) + slab.offset;
    launch.on.strided_copy(args);
  }
}

}  // namespace

Result<Kernel> prepare(const char* name, const NodeTypes& types, Tables tables, const Outside& outside) {
  const Type &x = types.inputs[0], &y = types.outputs[0];
  if (element_count(y.shape) == 0) return nn::no_work(name);
  auto p =
      std::make_shared<Prepared>(Prepared{x.dtype, {}, TRY(slabs_of(outside, y)), KnownBytes(types.target)});
  const Tensor value = Tensor::scalar(x.dtype, outside.value);
  p->value = p->known.add(value.data(), value.bytes());
  Shape shape = x.shape;
  std::size_t between[2] = {0, 0}, pass = 0;
  for (std::size_t d : order_of(tables)) {
    const AxisTable& table = *tables[d];
    const bool selects = table.selects();
    if (!selects) TRY(nn::require_kernel_type(types.target, x.dtype));
    p->axes.push_back({selects, axis_view(shape, static_cast<std::int64_t>(d)), table.out(),
                       selects ? 0 : p->known.add(table.begin), p->known.add(table.index),
                       selects ? 0 : p->known.add(table.weight)});
    shape[d] = table.out();
    between[pass % 2] = std::max(between[pass % 2], byte_size({x.dtype, shape}));
    ++pass;
  }
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  p->buffers[0] = aligned(p->known.workspace_bytes());
  p->buffers[1] = p->buffers[0] + (pass > 1 ? aligned(between[0]) : 0);
  p->count = element_count(x.shape);
  Kernel kernel;
  kernel.name = name;
  kernel.workspace_bytes = p->buffers[1] + (pass > 2 ? aligned(between[1]) : 0);
  kernel.run = [p = std::shared_ptr<const Prepared>(p)](const LaunchArgs& launch) { run(*p, launch); };
  return kernel;
}

ValueId gradient(GraphBuilder& b, ValueId dy, const Tables& tables) {
  Tables back;
  for (const auto& table : tables) back.push_back(table ? std::optional(table->transposed()) : std::nullopt);
  const auto i32s = [&](const std::vector<std::int32_t>& values) {
    Tensor t(DType::i32, {static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), t.mutable_as<std::int32_t>());
    return b.constant(std::move(t));
  };
  for (std::size_t d : order_of(back)) {
    const AxisTable& table = *back[d];
    const Tensor weight =
        Tensor::from_f64(DType::f64, {static_cast<std::int64_t>(table.weight.size())}, table.weight);
    dy = b.op("Resample", {dy, i32s(table.begin), i32s(table.index), b.constant(weight)},
              {{"axis", static_cast<std::int64_t>(d)}});
  }
  return dy;
}

double flops(const Shape& x, const Tables& tables) {
  Shape shape = x;
  double total = 0;
  for (std::size_t d : order_of(tables)) {
    const AxisView v = axis_view(shape, static_cast<std::int64_t>(d));
    if (!tables[d]->selects())
      total += 2.0 * static_cast<double>(v.outer * v.inner) * static_cast<double>(tables[d]->index.size());
    shape[d] = tables[d]->out();
  }
  return total;
}

}  // namespace gradloom::resampling

namespace gradloom {
namespace {

using resampling::AxisTable;

// The table that inputs 1 to 3 hold, checked.
Result<AxisTable> table_of(const Tensor* begin, const Tensor* index, const Tensor* weight, std::int64_t in) {
  if (begin == nullptr || index == nullptr || weight == nullptr)
    return infer_error("the table must be known before running");
  if (begin->dtype() != DType::i32 || index->dtype() != DType::i32 || weight->dtype() != DType::f64 ||
      begin->count() < 1 || index->count() != weight->count())
    return infer_error("the table must be begin and index in i32, weight in f64");
  AxisTable table;
  table.in = in;
  for (std::int64_t e = 0; e < index->count(); ++e) {
    if (index->int_at(e) < 0 || index->int_at(e) >= in)
      return infer_error("an index of the table is out of range");
    table.add(index->int_at(e), weight->at(e));
  }
  table.begin.clear();
  for (std::int64_t j = 0; j < begin->count(); ++j) {
    const std::int64_t at = begin->int_at(j), before = table.begin.empty() ? 0 : table.begin.back();
    if (at < before || at > index->count() || (j == 0 && at != 0))
      return infer_error("the rows of the table are out of order");
    table.begin.push_back(static_cast<std::int32_t>(at));
  }
  return table;
}

Status infer_resample(InferContext& ctx) {
  TRY(require_inputs(ctx, 4));
  Shape y = ctx.shape(0);
  const auto axis = static_cast<std::size_t>(TRY(normalized_axis(ctx.attrs.integer("axis"), y.size())));
  if (y[axis] < 0) return infer_error("the axis must have a known size");
  y[axis] = TRY(table_of(ctx.constant(1), ctx.constant(2), ctx.constant(3), y[axis])).out();
  ctx.outputs[0] = {ctx.dtype(0), y};
  return {};
}

// The tables are inputs of the node, so they are in the memory of the device.
Result<Kernel> prepare_resample(const NodeTypes& types) {
  const Type &x = types.inputs[0], &y = types.outputs[0];
  TRY(nn::require_kernel_type(types.target, x.dtype));
  const auto axis = TRY(normalized_axis(types.attrs.integer("axis"), x.shape.size()));
  const AxisView v = axis_view(x.shape, axis);
  const kernels::ResampleArgs args{x.dtype, v.outer, v.size,  y.shape[static_cast<std::size_t>(axis)],
                                   v.inner, nullptr, nullptr, nullptr,
                                   nullptr, nullptr};
  Kernel kernel;
  kernel.name = "resample";
  kernel.run = [args](const LaunchArgs& launch) {
    kernels::ResampleArgs a = args;
    a.x = launch.inputs[0];
    a.begin = static_cast<const std::int32_t*>(launch.inputs[1]);
    a.index = static_cast<const std::int32_t*>(launch.inputs[2]);
    a.weight = static_cast<const double*>(launch.inputs[3]);
    a.y = launch.outputs[0];
    launch.on.resample(a);
  };
  return kernel;
}

Status grad_resample(GradContext& ctx) {
  const auto known = [&](std::size_t i) {
    const Value& v = ctx.b.graph().values[ctx.in(i)];
    return is_constant(ctx.b.graph(), ctx.in(i)) && v.data.defined() ? &v.data : nullptr;
  };
  const Shape x = ctx.shape(ctx.in(0));
  const auto axis = static_cast<std::size_t>(TRY(normalized_axis(ctx.node.attrs.integer("axis"), x.size())));
  resampling::Tables tables(x.size());
  tables[axis] = TRY(table_of(known(1), known(2), known(3), x[axis]));
  if (ctx.wants(0)) ctx.set(0, resampling::gradient(ctx.b, ctx.grad(), tables));
  return {};
}

Cost cost_resample(const NodeTypes& types) {
  Cost cost = default_cost(types);
  const double rows = static_cast<double>(element_count(types.outputs[0].shape)) /
                      std::max(1.0, static_cast<double>(element_count(types.inputs[1].shape) - 1));
  cost.flops = 2 * rows * static_cast<double>(element_count(types.inputs[2].shape));
  return cost;
}

std::vector<Sample> resample_samples() {
  const auto known = [](DType dtype, const std::vector<double>& values) {
    SampleInput input = exact(dtype, {static_cast<std::int64_t>(values.size())}, values);
    input.constant = true;
    return input;
  };
  const SampleInput begin = known(DType::i32, {0, 2, 2, 5, 6}), index = known(DType::i32, {0, 1, 2, 1, 0, 2});
  const SampleInput weight = known(DType::f64, {0.5, 0.25, -1, 2, 0.125, 1});
  std::vector<Sample> list = {
      sample_of("rows", {{"axis", std::int64_t{0}}}, {floats({3, 5}), begin, index, weight}),
      sample_of("last axis", {{"axis", std::int64_t{-1}}}, {floats({2, 4, 3}), begin, index, weight}),
      sample_of("middle axis", {{"axis", std::int64_t{1}}}, {floats({2, 3, 70}), begin, index, weight})};
  return list;
}

}  // namespace

const OpDef resample_op = {.name = "Resample",
                           .domain = "gradloom",
                           .summary = "Sparse matrix times one axis: the gradient of Resize and Pad",
                           .min_inputs = 4,
                           .max_inputs = 4,
                           .infer = infer_resample,
                           .grad = grad_resample,
                           .cost = cost_resample,
                           .cpu = prepare_resample,
                           .gpu = prepare_resample,
                           .samples = resample_samples};

}  // namespace gradloom
