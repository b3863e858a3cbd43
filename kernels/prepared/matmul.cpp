// Matrix multiplication. f32, bf16: one oneDNN matmul primitive on the strides as they are; batch dims are merged, and folded into the rows
// when B is shared. Operands whose layout oneDNN has no fast path for are copied into the workspace first. Activations run as an
// elementwise kernel over C while it is in the cache: oneDNN's relu turns NaN into 0 and its gelu is less accurate than the separate
// operator. f64, and most f32 without AVX-512: the gemm kernel.
#include "kernels/prepared/matmul.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/cpu.h"
#include "kernels/prepared/activated_matmul.h"
#include "kernels/prepared/bf16.h"
#include "kernels/prepared/dnnl.h"
#include "kernels/prepared/trial_tensor.h"

namespace gradloom::kernels {
namespace {

using dnnl::memory;
using prepared::Layout;
using prepared::OneThread;

struct BatchDim {
  std::int64_t size, a, b, c;
};

// A matrix operand: rows x cols with strides.
struct Matrix {
  std::int64_t rows, cols, row_stride, col_stride;
};

struct Problem {
  std::vector<BatchDim> batch;
  Matrix a, b, c;
  std::int64_t m() const { return c.rows; }
  std::int64_t n() const { return c.cols; }
  std::int64_t k() const { return a.cols; }
  std::int64_t batches() const {
    std::int64_t count = 1;
    for (const BatchDim& d : batch) count *= d.size;
    return count;
  }
};

Problem problem_of(const MatMulDesc& desc) {
  const std::size_t rank = desc.batch.size();
  if (desc.a_strides.size() != rank + 2 || desc.b_strides.size() != rank + 2 ||
      desc.c_strides.size() != rank + 2) {
    throw std::runtime_error("matmul: strides do not match the batch dims");
  }
  Problem p;
  for (std::size_t d = 0; d < rank; ++d) {
    const BatchDim next{desc.batch[d], desc.a_strides[d], desc.b_strides[d], desc.c_strides[d]};
    if (next.size == 1) continue;
    if (!p.batch.empty()) {
      BatchDim& last = p.batch.back();
      if (last.a == next.a * next.size && last.b == next.b * next.size && last.c == next.c * next.size) {
        last = {last.size * next.size, next.a, next.b, next.c};
        continue;
      }
    }
    p.batch.push_back(next);
  }
  p.a = {desc.m, desc.k, desc.a_strides[rank], desc.a_strides[rank + 1]};
  p.b = {desc.k, desc.n, desc.b_strides[rank], desc.b_strides[rank + 1]};
  p.c = {desc.m, desc.n, desc.c_strides[rank], desc.c_strides[rank + 1]};
  return p;
}

// A shared B: the innermost batch dim becomes part of the rows where the rows go on evenly.
void fold_batch_into_rows(Problem& p) {
  while (!p.batch.empty()) {
    const BatchDim inner = p.batch.back();
    if (inner.b != 0) return;
    if (p.m() == 1) {
      p.a.row_stride = inner.a;
      p.c.row_stride = inner.c;
    } else if (inner.a != p.m() * p.a.row_stride || inner.c != p.m() * p.c.row_stride) {
      return;
    }
    p.a.rows = p.c.rows = p.m() * inner.size;
    p.batch.pop_back();
  }
}

// Strides of dims of size 1 mean nothing: give them the value that makes the layout plain.
void tidy(Matrix& x) {
  if (x.cols == 1 && x.rows == 1) {
    x.row_stride = x.col_stride = 1;
  } else if (x.cols == 1) {
    x.col_stride = x.row_stride == 1 ? x.rows : 1;
  } else if (x.rows == 1) {
    x.row_stride = x.col_stride == 1 ? x.cols : 1;
  }
}

bool plain(const Matrix& x) {
  return (x.col_stride == 1 && x.row_stride >= x.cols) || (x.row_stride == 1 && x.col_stride >= x.rows);
}

class BlockedMatMul final : public MatMul {
 public:
  explicit BlockedMatMul(const MatMulDesc& desc) : bias_(desc.bias), args_(gemm_args(desc)) {}
  std::size_t workspace_bytes() const override { return 0; }
  void run(const void* a, const void* b, const void* bias, void* c, void*) override {
    GemmArgs args = args_;
    args.a = a;
    args.b = b;
    args.bias = bias_ ? bias : nullptr;
    args.c = c;
    cpu().gemm(args);
  }
  bool keeps_bits() const override { return true; }
  std::string implementation() const override {
    return args_.dtype == DType::f64 ? "f64 blocked" : "f32 blocked";
  }

 private:
  bool bias_;
  GemmArgs args_;
};

// Without AVX-512 oneDNN multiplies f32 by a gemm that takes 1.2 to 2.5 times as long, most where rows lie a
// power of two apart (AVX2, 2 threads). What is packed once for many runs, and what has few rows or columns to
// pay for its packing, is oneDNN's.
bool blocked_is_faster(const MatMulDesc& desc, const Problem& problem) {
  constexpr std::int64_t kLeast = 16;
  return !prepared::has_avx512() && !desc.packed_b && problem.m() >= kLeast && problem.n() >= kLeast &&
         problem.k() >= kLeast && problem.batch.size() <= std::size_t(kEwMaxRank);
}

// A copy between an operand and a dense image of it in the workspace.
struct Packed {
  bool used = false;
  std::size_t offset = 0;
  StridedCopyArgs copy{};  // strides of the operand in in_strides, of the image in out_strides
};

// Stride of one operand along a batch dim.
using StrideOf = std::int64_t BatchDim::*;

// ---- pieces of C ----------------------------------------------------------------------------------------

// Into how many pieces C is cut along its largest batch dim, its rows and its columns.
struct Grid {
  int batch_dim = -1;  // none
  std::int64_t batches = 1, rows = 1, columns = 1;
};

constexpr double kLargePieceFlops = 64e6;
constexpr std::int64_t kEnoughPieces = 16, kLeastRows = 128, kLeastColumns = 128;

// bf16: a row of pieces copies all of B, a column of them all of A. Where that costs least with columns alone, or with neither as the batch
// has pieces enough, C is cut so (512 x 50257 x 768: 1 x 16 pieces 1.1 times as fast as 2 x 1); not where A lies column by column.
bool cut_by_copies(const Problem& p, std::int64_t wanted, Grid& grid) {
  const double flops = 2 * double(p.m()) * double(p.n()) * double(p.k());
  if (flops / double(wanted) < kLargePieceFlops || p.a.col_stride != 1) return false;
  double least = 0;
  for (std::int64_t rows = 1; rows <= wanted; rows *= 2) {
    const std::int64_t columns = wanted / rows;
    if ((rows > 1 && p.m() / rows < kLeastRows) || (columns > 1 && p.n() / columns < kLeastColumns)) continue;
    const double copies = double(rows) * double(p.n()) + double(columns) * double(p.m());
    if (least > 0 && copies >= least) continue;
    least = copies;
    grid.rows = rows;
    grid.columns = columns;
  }
  return least > 0 && grid.rows == 1;
}

// What a piece does for itself, copying its panels, is a few percent of its work. With rows alone oneDNN keeps its fastest kernels (2 threads,
// AVX-512, 128 rows: 0.99 to 1.02 of the time of its own cut); a B that lies column by column it copies at more expense.
Grid grid_of(const Problem& p, bool bf16) {
  const auto batches = double(p.batches()), m = double(p.m()), n = double(p.n()), k = double(p.k());
  const double flops = 2 * batches * m * n * k, elements = batches * (m * k + k * n + m * n);
  const std::int64_t wanted = prepared::worthwhile_parts(flops, elements);
  const auto at_most = [](std::int64_t count, std::int64_t most) {
    return std::clamp<std::int64_t>(count, 1, std::max<std::int64_t>(most, 1));
  };
  Grid grid;
  for (int d = 0; d < int(p.batch.size()); ++d) {
    if (p.batch[std::size_t(d)].size <= grid.batches) continue;
    grid.batch_dim = d;
    grid.batches = p.batch[std::size_t(d)].size;
  }
  grid.batches = std::min(grid.batches, wanted);
  Grid large = grid;
  const std::int64_t worth = std::min(wanted, std::int64_t(flops / (8 * kLargePieceFlops)));
  const std::int64_t many = p.batch.empty() ? std::max(kEnoughPieces, worth) : kEnoughPieces / grid.batches;
  if (bf16 && cut_by_copies(p, at_most(many, wanted), large)) return large;
  const bool b_by_columns = p.b.col_stride != 1;
  const std::int64_t least_rows = b_by_columns ? 2 * kLeastRows : kLeastRows;
  grid.rows = at_most(p.m() / least_rows, wanted / grid.batches);
  // Three pieces take two threads as long as four (768 rows, 2 threads: 1.33 times as fast with a fourth).
  if (grid.rows > 1 && grid.batches * grid.rows % 2 == 1) ++grid.rows;
  const std::int64_t pieces = grid.batches * grid.rows;
  if (pieces == 1) {
    // Also what one thread has no reason to do alone (64 x 128 x 512: 37 us as one piece, 21 as two); three, five and seven are halved.
    const std::int64_t few = std::min<std::int64_t>(wanted, 2);
    grid.columns = at_most(p.n() / kLeastColumns, wanted);
    if (grid.columns == 1) grid.rows = at_most(p.m() / (least_rows / 4), few);
    if (grid.columns * grid.rows == 1) grid.columns = at_most(p.n() / (kLeastColumns / 2), few);
    if (grid.columns > 1 && grid.columns < 8 && grid.columns % 2 == 1) grid.columns *= 2;
  } else if (!b_by_columns) {
    grid.columns = at_most(
        std::min(p.n() / (2 * kLeastColumns), std::int64_t(flops / double(pieces) / kLargePieceFlops)),
        kEnoughPieces / pieces);
  }
  return grid;
}

struct Span {
  std::int64_t begin, count;
};

// [0, size) in `count` spans, nearly equal multiples of `granule`.
std::vector<Span> spans_of(std::int64_t size, std::int64_t count, std::int64_t granule) {
  const std::int64_t units = (size + granule - 1) / granule;
  std::vector<Span> spans;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = units * i / count * granule,
                       end = std::min(size, units * (i + 1) / count * granule);
    if (begin < end) spans.push_back({begin, end - begin});
  }
  return spans;
}

class DnnlMatMul final : public MatMul {
 public:
  DnnlMatMul(const MatMulDesc& desc, const Problem& problem) : desc_(desc), problem_(problem) {
    prepare_operand(problem_.a, &BatchDim::a, a_);
    prepare_operand(problem_.b, &BatchDim::b, b_);
    packing_ = desc_.packed_b && problem_.batch.empty() && !b_.used;
    if (problem_.c.col_stride != 1 || problem_.c.row_stride < problem_.c.cols) {
      pack_operand(problem_.c, &BatchDim::c, c_, c_bytes());
    }
    if (!create_pieces()) {
      // No fast implementation for these strides: dense copies of everything always have one.
      packing_ = false;
      if (!a_.used) pack_operand(problem_.a, &BatchDim::a, a_, dtype_bytes(desc_.dtype));
      if (!b_.used) pack_operand(problem_.b, &BatchDim::b, b_, dtype_bytes(desc_.dtype));
      if (!c_.used) pack_operand(problem_.c, &BatchDim::c, c_, c_bytes());
      create_pieces();
    }
    std::size_t bytes = 0;
    for (const Shape& shape : shapes_) bytes = std::max(bytes, shape.pd.scratchpad_desc().get_size());
    scratchpad_bytes_ = aligned_bytes(bytes);
    scratchpads_ = layout_.take(scratchpad_bytes_ * std::size_t(team()));
  }

  std::size_t workspace_bytes() const override { return layout_.size(); }
  std::size_t packed_bytes() const override { return packing_ ? packed_.size() : 0; }
  void pack_b(const void* b, void* packed) override {
    for (Panel& panel : panels_)
      panel.pack.run(static_cast<const char*>(b) + panel.given, prepared::at(packed, panel.packed));
  }

  void run(const void* a, const void* b, const void* bias, void* c, void* workspace) override {
    a = packed_in(a_, a, workspace);
    b = packed_in(b_, b, workspace);
    void* const out = c_.used ? prepared::at(workspace, c_.offset) : c;
    if (c_.used && desc_.accumulate) packed_in(c_, c, workspace);
    const auto run_piece = [&](std::int64_t number) {
      const OneThread scope;
      const Piece& piece = pieces_[std::size_t(number)];
      void* const scratchpad =
          prepared::at(workspace, scratchpads_ + scratchpad_bytes_ * std::size_t(worker_number()));
      shapes_[piece.shape].call.run({static_cast<const char*>(a) + piece.a,
                                     static_cast<const char*>(b) + piece.b, static_cast<char*>(out) + piece.c,
                                     scratchpad, static_cast<const char*>(bias) + piece.bias});
    };
    for_parts(std::int64_t(pieces_.size()), run_piece, team());
    if (c_.used) {
      StridedCopyArgs back = c_.copy;
      std::swap(back.in_strides, back.out_strides);
      back.in = out;
      back.out = c;
      cpu().strided_copy(back);
    }
  }

  bool has_bits_of(MatMul& other) override {
    auto* const product = dynamic_cast<DnnlMatMul*>(&other);
    if (product == nullptr || packing_ || product->packing_ || shapes_.size() != product->shapes_.size())
      return false;
    static prepared::TrialVerdicts verdicts;
    return verdicts.of(desc_, product->desc_, [&] {
      return std::equal(shapes_.begin(), shapes_.end(), product->shapes_.begin(),
                        [&](Shape& x, Shape& y) { return equal_bits(x, *product, y); });
    });
  }

  std::string implementation() const override { return implementation_of(shapes_[0]); }

 private:
  // What pieces of the same size share.
  struct Shape {
    std::int64_t batches, rows, columns;
    dnnl::matmul::primitive_desc pd;
    prepared::Call call;
  };
  struct Piece {
    std::size_t shape;
    std::int64_t a, b, c, bias;  // bytes
  };
  // Columns of B that pieces share, packed.
  struct Panel {
    std::int64_t given;  // bytes
    std::size_t packed;
    prepared::Reorder pack;
  };

  int team() const { return shapes_[0].call.team(); }

  static std::string implementation_of(const Shape& shape) { return shape.pd.impl_info_str(); }
  static bool same_layouts(const Shape& x, const Shape& y) {
    return x.pd.src_desc() == y.pd.src_desc() && x.pd.weights_desc() == y.pd.weights_desc() &&
           x.pd.dst_desc() == y.pd.dst_desc();
  }
  bool equal_bits(Shape& x, DnnlMatMul& other, Shape& y) const {
    if (implementation_of(x) != implementation_of(y) || x.pd.dst_desc().dims() != y.pd.dst_desc().dims() ||
        x.rows != y.rows || x.columns != y.columns)
      return false;
    if (same_layouts(x, y)) return true;
    constexpr std::size_t kMostBytes = std::size_t{32} << 20;  // of a trial's operands
    const auto bytes_of = [](const Shape& shape) {
      return shape.pd.src_desc().get_size() + shape.pd.weights_desc().get_size() +
             shape.pd.dst_desc().get_size();
    };
    if (desc_.dtype == DType::bf16 || bytes_of(x) > kMostBytes || bytes_of(y) > kMostBytes)
      return false;  // a trial of bf16 tells nothing: its sums are exact in every order
    return trial(x, scratchpad_bytes_) == other.trial(y, other.scratchpad_bytes_);
  }

  // The bits of a piece of this size.
  std::vector<char> trial(Shape& shape, std::size_t scratchpad_bytes) const {
    const OneThread scope;
    prepared::TrialTensor a(shape.pd.src_desc(), 1), b(shape.pd.weights_desc(), 2),
        c = desc_.accumulate ? prepared::TrialTensor(shape.pd.dst_desc(), 3)
                             : prepared::TrialTensor(shape.pd.dst_desc()),
        bias(memory::desc({shape.columns}, type_, memory::dims{1}), 4);
    const prepared::AlignedMemory scratchpad = prepared::aligned_memory(scratchpad_bytes);
    shape.call.run({a.data(), b.data(), c.data(), scratchpad.get(), bias.data()});
    return c.bits();
  }

  void prepare_operand(Matrix& x, StrideOf stride, Packed& packed) {
    tidy(x);
    if (!plain(x)) pack_operand(x, stride, packed, dtype_bytes(desc_.dtype));
  }

  // The problem's operand becomes a dense image in the workspace. Broadcast batch dims stay broadcast.
  void pack_operand(Matrix& x, StrideOf stride, Packed& packed, std::size_t element_bytes) {
    packed.used = true;
    StridedCopyArgs& copy = packed.copy;
    copy.element_bytes = element_bytes;
    copy.rank = 0;
    std::int64_t count = x.rows * x.cols;
    for (std::size_t d = problem_.batch.size(); d-- > 0;) {
      BatchDim& dim = problem_.batch[d];
      if (dim.*stride == 0) continue;
      if (copy.rank + 2 == kEwMaxRank) throw std::runtime_error("matmul: too many batch dims to copy");
      const int at = copy.rank++;
      copy.dims[at] = dim.size;
      copy.in_strides[at] = dim.*stride;
      copy.out_strides[at] = dim.*stride = count;
      count *= dim.size;
    }
    std::reverse(copy.dims, copy.dims + copy.rank);
    std::reverse(copy.in_strides, copy.in_strides + copy.rank);
    std::reverse(copy.out_strides, copy.out_strides + copy.rank);
    for (const auto& [size, from, to] :
         {std::array{x.rows, x.row_stride, x.cols}, std::array{x.cols, x.col_stride, std::int64_t{1}}}) {
      copy.dims[copy.rank] = size;
      copy.in_strides[copy.rank] = from;
      copy.out_strides[copy.rank++] = to;
    }
    x.row_stride = x.cols;
    x.col_stride = 1;
    packed.offset = layout_.take(std::size_t(count) * element_bytes);
  }

  const void* packed_in(const Packed& packed, const void* data, void* workspace) const {
    if (!packed.used) return data;
    StridedCopyArgs copy = packed.copy;
    copy.in = data;
    copy.out = prepared::at(workspace, packed.offset);
    cpu().strided_copy(copy);
    return copy.out;
  }

  std::size_t c_bytes() const { return dtype_bytes(desc_.wide_c ? DType::f32 : desc_.dtype); }

  // Of a piece: so many of the batch dim that is cut, so many rows and columns.
  memory::desc describe(const Matrix& x, StrideOf stride, memory::data_type type, std::int64_t batches,
                        std::int64_t rows, std::int64_t cols) const {
    memory::dims dims, strides;
    for (std::size_t d = 0; d < problem_.batch.size(); ++d) {
      const BatchDim& dim = problem_.batch[d];
      const bool broadcast = dim.*stride == 0;
      dims.push_back(broadcast ? 1 : int(d) == grid_.batch_dim ? batches : dim.size);
      strides.push_back(broadcast ? x.rows * x.cols : dim.*stride);
    }
    dims.insert(dims.end(), {rows, cols});
    strides.insert(strides.end(), {x.row_stride, x.col_stride});
    return {dims, type, strides};
  }

  // False if oneDNN has only its reference implementation.
  bool create_pieces() {
    const OneThread scope;
    shapes_.clear();
    pieces_.clear();
    panels_.clear();
    packed_ = Layout();
    grid_ = grid_of(problem_, desc_.dtype == DType::bf16);
    const auto in = std::int64_t(dtype_bytes(desc_.dtype)), out = std::int64_t(c_bytes());
    const Matrix &a = problem_.a, &b = problem_.b, &c = problem_.c;
    const BatchDim cut =
        grid_.batch_dim >= 0 ? problem_.batch[std::size_t(grid_.batch_dim)] : BatchDim{1, 0, 0, 0};
    for (const Span& columns : spans_of(problem_.n(), grid_.columns, 64)) {
      std::int64_t b_at = columns.begin * b.col_stride * in;
      for (const Span& rows : spans_of(problem_.m(), grid_.rows, 16))
        for (const Span& batches : spans_of(cut.size, grid_.batches, 1)) {
          const std::size_t shape = shape_of(batches.count, rows.count, columns.count);
          if (prepared::is_reference(shapes_[shape].pd.impl_info_str())) return false;
          if (packing_ && rows.begin == 0) b_at = add_panel(shapes_[shape], b_at);
          pieces_.push_back({shape, (batches.begin * cut.a + rows.begin * a.row_stride) * in,
                             b_at + batches.begin * cut.b * in,
                             (batches.begin * cut.c + rows.begin * c.row_stride + columns.begin) * out,
                             desc_.bias ? columns.begin * in : 0});
        }
    }
    return true;
  }

  // Where the columns of B that begin at `given` lie when runs take them.
  std::int64_t add_panel(const Shape& shape, std::int64_t given) {
    const memory::desc wanted = shape.pd.weights_desc(),
                       from = describe(problem_.b, &BatchDim::b, type_, 1, problem_.k(), shape.columns);
    packing_ = panels_.empty() ? wanted != from : true;
    if (!packing_) return given;
    const std::size_t at = packed_.take(wanted.get_size());
    panels_.push_back({given, at, prepared::Reorder(from, wanted)});
    return std::int64_t(at);
  }

  // Which of shapes_ it is; made where it is none of them.
  std::size_t shape_of(std::int64_t batches, std::int64_t rows, std::int64_t columns) {
    memory::desc b = packing_ ? memory::desc({problem_.k(), columns}, type_, memory::format_tag::any)
                              : describe(problem_.b, &BatchDim::b, type_, batches, problem_.k(), columns);
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      const Shape& shape = shapes_[i];
      if (shape.columns != columns) continue;
      if (shape.batches == batches && shape.rows == rows) return i;
      if (packing_) b = shape.pd.weights_desc();  // all rows read what is packed for the first
    }
    shapes_.push_back(make_shape(batches, rows, columns, b));
    return shapes_.size() - 1;
  }

  Shape make_shape(std::int64_t batches, std::int64_t rows, std::int64_t columns,
                   const memory::desc& b) const {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::post_ops ops;
    if (desc_.alpha != 1.0) attr.set_output_scales(0, {float(desc_.alpha)});
    if (desc_.accumulate) ops.append_sum(1.0f);
    const std::size_t rank = problem_.batch.size() + 2;
    memory::dims bias_dims(rank, 1), bias_strides(rank, columns);
    bias_dims.back() = columns;
    bias_strides.back() = 1;
    const memory::desc bias_desc(bias_dims, type_, bias_strides);
    int bias_slot = DNNL_ARG_BIAS;
    // Output scales also multiply the bias, so with alpha the bias is added afterwards.
    if (desc_.bias && desc_.alpha != 1.0) {
      bias_slot = DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len()) | DNNL_ARG_SRC_1;
      ops.append_binary(dnnl::algorithm::binary_add, bias_desc);
    }
    attr.set_post_ops(ops);
    const memory::data_type c_type = desc_.wide_c ? memory::data_type::f32 : type_;
    const memory::desc a = describe(problem_.a, &BatchDim::a, type_, batches, rows, problem_.k()),
                       c = describe(problem_.c, &BatchDim::c, c_type, batches, rows, columns);
    const bool native_bias = desc_.bias && bias_slot == DNNL_ARG_BIAS;
    const dnnl::matmul::desc desc =
        native_bias ? dnnl::matmul::desc(a, b, bias_desc, c) : dnnl::matmul::desc(a, b, c);
    prepared::require_room();
    const dnnl::matmul::primitive_desc pd(desc, attr, prepared::engine());
    prepared::Call call{dnnl::matmul(pd)};
    call.add(DNNL_ARG_SRC, pd.src_desc());
    call.add(DNNL_ARG_WEIGHTS, pd.weights_desc());
    call.add(DNNL_ARG_DST, pd.dst_desc());
    call.add(DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc());
    if (desc_.bias) call.add(bias_slot, bias_desc);
    return {batches, rows, columns, pd, std::move(call)};
  }

  MatMulDesc desc_;
  const memory::data_type type_ =
      desc_.dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  Problem problem_;
  Layout layout_;
  Packed a_, b_, c_;
  Grid grid_;
  std::vector<Shape> shapes_;
  std::vector<Piece> pieces_;
  bool packing_ = false;
  Layout packed_;
  std::vector<Panel> panels_;
  std::size_t scratchpads_ = 0, scratchpad_bytes_ = 0;  // one for each thread
};

// Nothing to multiply: C = bias (+ C), or no elements at all.
template <class T>
class EmptyMatMul final : public MatMul {
 public:
  EmptyMatMul(const MatMulDesc& desc, Problem problem) : desc_(desc), problem_(std::move(problem)) {}
  std::size_t workspace_bytes() const override { return 0; }
  void run(const void*, const void*, const void* bias, void* c, void*) override {
    T* const out = static_cast<T*>(c);
    for (std::int64_t number = 0; number < problem_.batches(); ++number) {
      std::int64_t offset = 0, rest = number;
      for (std::size_t d = problem_.batch.size(); d-- > 0;) {
        offset += rest % problem_.batch[d].size * problem_.batch[d].c;
        rest /= problem_.batch[d].size;
      }
      for (std::int64_t i = 0; i < problem_.m(); ++i) {
        for (std::int64_t j = 0; j < problem_.n(); ++j) {
          T& v = out[offset + i * problem_.c.row_stride + j * problem_.c.col_stride];
          v = (desc_.accumulate ? v : T(0)) + (desc_.bias ? static_cast<const T*>(bias)[j] : T(0));
        }
      }
    }
  }
  std::string implementation() const override { return "empty"; }

 private:
  MatMulDesc desc_;
  Problem problem_;
};

}  // namespace

GemmArgs gemm_args(const MatMulDesc& desc) {
  Problem problem = problem_of(desc);
  fold_batch_into_rows(problem);
  if (problem.batch.size() > std::size_t(kEwMaxRank)) throw std::runtime_error("matmul: too many batch dims");
  GemmArgs args{};
  args.dtype = desc.dtype;
  args.batch_rank = int(problem.batch.size());
  for (int d = 0; d < args.batch_rank; ++d) {
    const BatchDim& dim = problem.batch[std::size_t(d)];
    args.batch_dims[d] = dim.size;
    args.a_batch[d] = dim.a;
    args.b_batch[d] = dim.b;
    args.c_batch[d] = dim.c;
  }
  args.m = problem.m();
  args.n = problem.n();
  args.k = problem.k();
  args.a_row = problem.a.row_stride;
  args.a_col = problem.a.col_stride;
  args.b_row = problem.b.row_stride;
  args.b_col = problem.b.col_stride;
  args.c_row = problem.c.row_stride;
  args.c_col = problem.c.col_stride;
  args.alpha = desc.alpha;
  args.activation = desc.activation;
  args.accumulate = desc.accumulate;
  args.wide_c = desc.wide_c;
  return args;
}

std::unique_ptr<MatMul> MatMul::create(const MatMulDesc& desc) {
  if (desc.wide_c && (desc.dtype != DType::bf16 || desc.activation != Activation::none))
    throw std::runtime_error("matmul: a wide result is that of a product in bf16 by itself");
  if (desc.activation != Activation::none) return std::make_unique<prepared::ActivatedMatMul>(desc);
  Problem problem = problem_of(desc);
  fold_batch_into_rows(problem);
  const bool empty = problem.m() * problem.n() * problem.k() * problem.batches() == 0;
  try {
    if (desc.dtype == DType::f64) {
      if (empty) return std::make_unique<EmptyMatMul<double>>(desc, problem);
      return std::make_unique<BlockedMatMul>(desc);
    }
    const bool bf16 = desc.dtype == DType::bf16 && has_bf16_products() && !empty;
    if (desc.dtype != DType::f32 && !bf16)
      throw std::runtime_error("matmul: only f32 and f64 are supported, and bf16 by some processors");
    if (empty) return std::make_unique<EmptyMatMul<float>>(desc, problem);
    if (!bf16 && blocked_is_faster(desc, problem)) return std::make_unique<BlockedMatMul>(desc);
    return std::make_unique<DnnlMatMul>(desc, problem);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw prepared::OutOfMemory();
    throw std::runtime_error(std::string("matmul: oneDNN: ") + error.what());
  }
}

}  // namespace gradloom::kernels
