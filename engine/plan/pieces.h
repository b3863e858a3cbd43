// Parts of tensors that lie in the whole: which Slice, Split and Concat nodes need no kernel.
//   Slice, Split   the results are bytes of the operand, as the result of a Reshape is: they are read where they lie
//   Concat         the operands are written where their bytes are in the result, by the kernels that make them
//
// A part that is dense in the whole (along axis 0, or with nothing but dims of 1 before it) and begins at a multiple of
// kAlignmentBytes, as all tensors in memory do, is taken by every kernel as it is, without its knowing: by a pointer.
//
// A part along another axis is rows of the whole with others between them. It stays where it is if all kernels that read it,
// and the one that writes what is joined, take strides (engine/ops/operand_rows.h), to the same bits: attention and its
// gradient, matrix products and Transpose read and write rows; elementwise operators and Concat read them, on the CPU.
// So the Split of a transformer's queries, keys and values costs nothing, nor does the Concat of their gradients.
// Views of such a part are rows as well, if no dim goes over the end of one, and so are those between a kernel and the Concat.
// Our own products have the same bits for any strides. oneDNN chooses its kernels by them: where it has another one for rows (gemm:jit
// for brg:avx512_core), what it multiplies stays dense; where it has the same, a trial tells (MatMul::has_bits_of).
// Which tensors of which operators is one function, not a field of OpDef: with these shapes only preparing a kernel tells.
//
// Copies stay, each with its reason, where a part is anything else, and
//   - where the whole is updated in place (a parameter by its optimizer) before the last reader of a part;
//   - where a part of a Slice or Split is updated in place itself;
//   - where a result is the caller's memory (plans in two parts): it can have no other;
//   - where an operand of Concat has its memory already: nothing makes it in this step, it is a state's next contents, a
//     part of another tensor, joined elsewhere, or given twice;
//   - in rows, where a part is an output of the graph, or is cut again: who reads it takes dense tensors;
//   - in rows on a GPU, where they begin between the packs of 16 bytes that its threads load;
//   - where the arena would become larger: a whole lives as long as any of its parts.
// A part is never written over by another value, not even where nothing reads it any more: others live beside it.
#pragma once

#include <string>
#include <vector>

#include "engine/plan/plan.h"

namespace gradloom {

// What a node moves without changing it.
struct Moves {
  bool joins = false;  // Concat: the parts become the whole; else the whole becomes the parts
  ValueId whole = kNone;
  std::vector<ValueId> parts;
  std::vector<BufferPart> places;  // of each part, in a dense whole that begins at 0
  std::string why;  // there are none: the reason. Empty: there are, or the node is of another operator
};
Moves moves_of(const Graph& graph, const Node& node);
bool has_rows(const Moves& moves);   // some part is not dense
bool moves_parts(const Node& node);  // Slice, Split or Concat

// Decides for every such node of `order`, the order in which the plan runs them. `known`: what was asked of kernels.
std::vector<PieceChoice> choose_pieces(const Graph& graph, const std::vector<NodeId>& order,
                                       const PlanOptions& options, KnownKernels& known);

}  // namespace gradloom
