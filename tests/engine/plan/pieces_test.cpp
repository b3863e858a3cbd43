// Parts of tensors that lie in the whole: what is taken and what not, with which reason; the same bits as with copies; and
// plans that are wrong about parts, each of which the checker must find.
#include "engine/plan/pieces.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/plan/known_kernels.h"
#include "tests/engine/plan/pieces_support.h"

namespace gradloom {
namespace {

TEST_F(Pieces, PartsOfASplitAreReadWhereTheyLie) {
  const auto parts = split(unary("Exp", x), {1, 3});
  graph.outputs = {unary("Tanh", parts[0]), unary("Sin", parts[1])};
  const Plan p = plan();
  EXPECT_EQ(p.steps.size(), 3u);
  EXPECT_EQ(p.buffer_of[parts[0]], p.buffer_of[parts[1]]);
  EXPECT_EQ(p.offset_in_buffer(parts[0]), 0);
  EXPECT_EQ(p.offset_in_buffer(parts[1]), 64);
  EXPECT_EQ(why(p, true), "no copy of 256 B");
  EXPECT_EQ(same_bits(), 1u);
}

TEST_F(Pieces, SlicesOfAnythingAndOfSlices) {
  const ValueId weight = b.parameter("w", Tensor(DType::f32, {4, 16}));
  const ValueId last = slice(slice(unary("Exp", x), 1, 4), -2, 4),
                flat = b.op("Reshape", {last, b.i64s({32})});
  const ValueId of_input = slice(x, 2, 4), of_weight = slice(weight, 0, 2);
  graph.outputs = {unary("Tanh", flat), b.op("Add", {of_input, of_weight})};
  const Plan p = plan();
  EXPECT_EQ(p.steps.size(), 3u);
  EXPECT_EQ(p.offset_in_buffer(flat), 128);
  EXPECT_EQ(p.buffer_of[of_input], p.buffer_of[x]);
  EXPECT_EQ(p.buffer_of[of_weight], p.buffer_of[weight]);
  EXPECT_EQ(same_bits(), 4u);
}

TEST_F(Pieces, OperandsOfConcatAreWrittenWhereTheyBelong) {
  const ValueId a = unary("Exp", x), c = unary("Tanh", slice(y, 1, 3)), whole = join({a, c});
  graph.outputs = {unary("Sin", whole), b.op("Neg", {a})};
  const Plan p = plan();
  EXPECT_EQ(p.steps.size(), 4u);
  EXPECT_EQ(p.buffer_of[a], p.buffer_of[whole]);
  EXPECT_EQ(p.offset_in_buffer(c), 256);
  EXPECT_EQ(p.buffers[static_cast<std::size_t>(p.buffer_of[whole])].bytes, 6 * 64);
  EXPECT_EQ(same_bits(), 2u);
}

TEST_F(Pieces, ViewsBetweenKernelAndConcat) {
  const ValueId a = b.op("Reshape", {unary("Exp", x), b.i64s({64})}),
                c = b.op("Reshape", {unary("Tanh", y), b.i64s({64})});
  const ValueId whole = join({a, c}), middle = slice(whole, 32, 96);
  graph.outputs = {unary("Sin", middle), whole};
  const Plan p = plan();
  EXPECT_EQ(p.steps.size(), 3u);
  EXPECT_EQ(p.buffer_of[middle], p.buffer_of[a]);
  EXPECT_EQ(p.offset_in_buffer(middle), 128);
  EXPECT_EQ(same_bits(), 2u);
}

// Leading dims of 1 leave the parts along the next axis dense.
TEST_F(Pieces, AnAxisBehindDimsOfOne) {
  const ValueId wide = b.op("Reshape", {unary("Exp", x), b.i64s({1, 1, 64})});
  const auto parts = split(wide, {16, 48}, -1);
  graph.outputs = {unary("Tanh", parts[0]), join({unary("Sin", parts[1]), unary("Neg", parts[0])}, 2)};
  EXPECT_EQ(plan().steps.size(), 4u);
  EXPECT_EQ(same_bits(), 2u);
}

TEST_F(Pieces, PartsThatAreNotDenseOrNotAlignedAreCopied) {
  const ValueId softmax = unary("Softmax", slice(x, 0, 8, 1));
  graph.outputs = {softmax};
  EXPECT_EQ(why(plan(), false),
            "'" + graph.nodes[graph.values[softmax].producer].name + "' (Softmax) reads dense tensors only");
  EXPECT_EQ(same_bits(), 0u);
  const ValueId narrow = b.input("narrow", {DType::f32, {4, 10}});
  graph.outputs = {unary("Tanh", slice(narrow, 1, 3))};
  EXPECT_EQ(why(plan(), false), "a part begins at byte 40, which is no multiple of 64");
  EXPECT_EQ(same_bits(), 0u);
  const ValueId backwards = b.op("Slice", {x, b.i64s({3}), b.i64s({-10}), b.i64s({0}), b.i64s({-1})});
  graph.outputs = {unary("Tanh", backwards)};
  EXPECT_EQ(why(plan(), false), "its step is -1");
  EXPECT_EQ(same_bits(), 0u);
  const ValueId corner = b.op("Slice", {x, b.i64s({0, 0}), b.i64s({2, 8}), b.i64s({0, 1})});
  graph.outputs = {unary("Tanh", corner)};
  EXPECT_EQ(why(plan(), false), "more than one axis is cut");
  EXPECT_EQ(same_bits(), 0u);
  graph.outputs = {unary("Tanh", slice(x, 3, 3))};
  EXPECT_EQ(why(plan(), false), "a part has no elements");
  EXPECT_EQ(same_bits(), 0u);
}

// One element, taken backwards, and positions beyond both ends: numpy's rules, which the checker reads by itself.
TEST_F(Pieces, SlicesBeginWhereNumpyBegins) {
  const ValueId e = unary("Exp", x);
  const auto with = [&](std::int64_t begin, std::int64_t end, std::int64_t step) {
    return unary("Neg", b.op("Slice", {e, b.i64s({begin}), b.i64s({end}), b.i64s({0}), b.i64s({step})}));
  };
  graph.outputs = {with(-1, -2, -1), with(-9, 2, 1), with(2, 99, 1), with(7, 2, -5), with(-2, -1, 3)};
  EXPECT_EQ(same_bits(), 5u);
}

TEST_F(Pieces, WhatCannotBeWrittenInPlaceIsJoinedByACopy) {
  const ValueId a = unary("Exp", x);
  const auto reason = [&](ValueId whole) {
    graph.outputs = {unary("Sin", whole)};
    EXPECT_EQ(same_bits(), 0u);
    return why(plan(), false);
  };
  EXPECT_EQ(reason(join({a, y})), "'y' is made by no kernel");
  EXPECT_EQ(reason(join({a, b.op("Reshape", {a, b.i64s({4, 16})})})),
            "'" + graph.values[a].name + "' is joined twice");
  EXPECT_EQ(reason(join({a, unary("Tanh", y)}, 1)),
            "'" + graph.nodes[graph.values[a].producer].name + "' (Exp) writes dense tensors only");
}

TEST_F(Pieces, AValueIsWrittenToOnePlaceOnly) {
  const ValueId a = unary("Exp", x), c = unary("Tanh", y), first = join({a, c});
  graph.outputs = {unary("Sin", first), unary("Neg", join({c, a})),
                   unary("Abs", join({first, unary("Sin", x)}))};
  EXPECT_EQ(same_bits(), 1u);
  std::vector<std::string> reasons;
  for (const PieceChoice& choice : plan().choices)
    if (!choice.taken) reasons.push_back(choice.why);
  const std::vector<std::string> expected = {
      "'" + graph.values[c].name + "' is a part of another tensor that is joined",
      "'" + graph.values[first].name + "' is joined in place itself"};
  EXPECT_EQ(reasons, expected);
}

// Dense parts are chosen before rows: what was to be copied into its place by then is a copy no more if its own parts become rows.
TEST_F(Pieces, ADensePartOfAnotherTensorIsNotMadeOfRows) {
  const auto turned = [&](ValueId v) {
    return b.op("Transpose", {v}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  };
  const ValueId v = b.input("v", {DType::f32, {8, 4}}), inner = join({turned(v), turned(unary("Exp", v))}, 1);
  graph.outputs = {unary("Sin", inner)};
  EXPECT_EQ(same_bits(), 1u) << "by itself it is";
  graph.outputs = {unary("Sin", join({unary("Tanh", y), inner}))};
  EXPECT_EQ(same_bits(), 1u);
  EXPECT_EQ(why(plan(), false),
            "'" + graph.values[inner].name + "' is a part of another tensor that is joined");
}

TEST_F(Pieces, APartOfAnotherTensorIsNotJoined) {
  const auto parts = split(unary("Exp", x), {2, 2});
  graph.outputs = {unary("Sin", join({parts[1], parts[0]}))};
  EXPECT_EQ(same_bits(), 1u);
  EXPECT_EQ(why(plan(), false), "'" + graph.values[parts[1]].name + "' is read in place from another tensor");
}

// Beside a part lie others that are still read: nothing is written over it, and not over the whole while it is read.
TEST_F(Pieces, PartsAreNeverWrittenOver) {
  const ValueId e = unary("Exp", x), first = slice(e, 0, 1), tanh = unary("Tanh", first);
  const ValueId sum = b.op("Add", {e, first});  // reads the part for every row
  graph.outputs = {tanh, b.op("Neg", {sum})};
  const Plan p = plan();
  EXPECT_NE(p.buffer_of[tanh], p.buffer_of[first]);
  EXPECT_NE(p.buffer_of[sum], p.buffer_of[e]);
  EXPECT_EQ(same_bits(), 1u);
}

TEST_F(Pieces, WhatIsJoinedIsWrittenOverWhenAllOfItIsRead) {
  const ValueId a = unary("Exp", x), whole = join({a, unary("Tanh", y)});
  const ValueId early = unary("Sin", a), over = unary("Neg", whole);
  graph.outputs = {early, unary("Abs", over)};
  const Plan p = plan();
  EXPECT_EQ(p.buffer_of[over], p.buffer_of[whole]);
  EXPECT_EQ(same_bits(), 1u);
}

// The first kernel's result is in its place since it was made: the operand that it could have overwritten stays.
TEST_F(Pieces, ThePlaceInTheWholeComesBeforeAnOperandsMemory) {
  const ValueId a = unary("Tanh", unary("Exp", x)), whole = join({a, unary("Sin", y)});
  graph.outputs = {unary("Neg", whole)};
  EXPECT_EQ(plan().buffer_of[a], plan().buffer_of[whole]);
  EXPECT_EQ(same_bits(), 1u);
}

// acc is updated in place: what reads a part of it later reads a copy.
TEST_F(Pieces, PartsOfWhatIsUpdatedInPlaceAreCopiedWhereTheyAreReadLater) {
  const ValueId acc = b.input("acc", rows, Role::state);
  const ValueId early = slice(acc, 1, 3), late = slice(acc, 0, 2);
  const ValueId used = unary("Exp", early);
  const ValueId next = b.op("Accumulate", {acc, x, b.input("micro", {DType::i64, {}}, Role::hyper)},
                            {{"count", std::int64_t{1}}});
  graph.updates = {{acc, next}};
  graph.nodes[graph.values[next].producer].rank = 5;
  const ValueId read_late = b.op("Mul", {late, slice(next, 0, 2)});
  graph.nodes[graph.values[read_late].producer].rank = 9;
  graph.outputs = {used, read_late};
  const Plan p = plan();
  EXPECT_EQ(p.buffer_of[early], p.buffer_of[acc]);
  EXPECT_NE(p.buffer_of[late], p.buffer_of[acc]);
  EXPECT_EQ(why(p, false),
            "'acc' is updated in place before the last reader of '" + graph.values[late].name + "'");
}

TEST_F(Pieces, WhatIsUpdatedInPlaceIsNoPart) {
  const ValueId start = unary("Exp", x), part = slice(start, 0, 2), g = slice(y, 0, 2);
  const ValueId micro = b.input("micro", {DType::i64, {}}, Role::hyper);
  const ValueId next = b.op("Accumulate", {part, g, micro}, {{"count", std::int64_t{1}}});
  graph.outputs = {next};
  const auto choices = [&] {
    const auto order = topological_order(graph);
    KnownKernels known;
    return choose_pieces(graph, *order, {stack_all, "stack", true}, known);
  }();
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_FALSE(choices[0].taken) << choices[0].why;
  EXPECT_TRUE(choices[1].taken) << choices[1].why;
}

TEST_F(Pieces, ResultsOfTheCallerAreCopies) {
  const ValueId e = unary("Exp", x), part = slice(e, 0, 2), whole = join({unary("Tanh", x), unary("Sin", y)});
  const ValueId inner = join({unary("Neg", x), unary("Abs", y)});
  graph.outputs = {part, whole, unary("Sin", inner)};
  PlanOptions options{stack_all, "stack", true};
  options.forward_outputs = 3;
  const auto made = make_plan(graph, options);
  ASSERT_TRUE(made.ok());
  const Status checked = check_plan(graph, *made);
  EXPECT_TRUE(checked.ok()) << checked.error().message;
  ASSERT_EQ(made->choices.size(), 3u);
  EXPECT_EQ(made->choices[0].why, "'" + graph.values[part].name + "' is a result of the caller's");
  EXPECT_EQ(made->choices[1].why, "'" + graph.values[whole].name + "' is a result of the caller's");
  EXPECT_TRUE(made->choices[2].taken) << made->choices[2].why;
}

// A whole that would live on for a small part, while much else is live: the copy stays.
TEST_F(Pieces, TheArenaIsNeverLargerThanWithCopies) {
  const ValueId big = b.input("big", {DType::f32, {64, 16}});
  const ValueId part = slice(unary("Exp", big), 0, 1);
  ValueId other = unary("Sin", b.op("Reshape", {big, b.i64s({16, 64})}));
  for (int i = 0; i < 3; ++i) other = b.op("MatMul", {b.op("Transpose", {other}), other});
  graph.outputs = {b.op("Add", {b.op("Reshape", {other, b.i64s({256, 16})}), part})};
  PlanOptions options{tightest, "tightest", true};
  const auto with = make_plan(graph, options);
  options.pieces = false;
  const auto without = make_plan(graph, options);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_LE(with->arena_bytes, without->arena_bytes);
  ASSERT_EQ(with->choices.size(), 1u);
  EXPECT_FALSE(with->choices[0].taken);
  EXPECT_NE(with->choices[0].why.find("the arena would take"), std::string::npos) << with->choices[0].why;
}

TEST_F(Pieces, TheSwitchTurnsThemOff) {
  const auto parts = split(unary("Exp", x), {1, 3});
  graph.outputs = {join({unary("Tanh", parts[0]), unary("Sin", parts[1])})};
  const Plan off = plan(false), on = plan(true);
  EXPECT_TRUE(off.pieces.empty());
  EXPECT_TRUE(off.choices.empty());
  EXPECT_EQ(off.steps.size(), on.steps.size() + 2);
  EXPECT_NE(off.hash, on.hash);
  // A tensor and its parts are one row, under the name of the whole.
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : largest_at_peak(graph, on, 5)) {
    EXPECT_EQ(on.pieces.count(find_value(graph, name)), 0u) << name;
    sum += bytes;
  }
  EXPECT_EQ(sum, on.lower_bound_bytes);
}

// ---- plans that are wrong ---------------------------------------------------------------------------------

struct WrongPieces : Pieces {
  ValueId e = kNone, first = kNone, second = kNone, a = kNone, c = kNone, whole = kNone;
  Plan good;
  void SetUp() override {
    e = unary("Exp", x);
    const auto parts = split(e, {1, 3});
    first = parts[0];
    second = parts[1];
    a = unary("Tanh", first);
    c = unary("Sin", second);
    whole = join({a, c});
    graph.outputs = {unary("Neg", whole), b.op("Abs", {e})};
    good = plan(true, false);
    ASSERT_EQ(good.pieces.size(), 4u);
  }
};

TEST_F(WrongPieces, APartElsewhereInTheWhole) {
  Plan bad = good;
  bad.pieces[second].offset_bytes = 0;
  expect_found(bad, "after it was overwritten, or where it is not");
  bad = good;
  bad.pieces[first].offset_bytes = 64;
  expect_found(bad, "after it was overwritten, or where it is not");
  bad = good;
  bad.pieces.erase(second);  // at the beginning of the buffer, then
  expect_found(bad, "after it was overwritten, or where it is not");
}

TEST_F(WrongPieces, APartInAnotherBuffer) {
  Plan bad = good;
  bad.buffer_of[first] = bad.buffer_of[x];
  expect_found(bad, "after it was overwritten, or where it is not");
  bad.buffer_of[first] = -1;
  bad.pieces.erase(first);
  expect_found(bad, "has no buffer");
}

TEST_F(WrongPieces, PartsThatOverlapWhereTheyAreWritten) {
  Plan bad = good;
  bad.pieces[c].offset_bytes = 0;
  EXPECT_FALSE(said(bad).empty());
  bad = good;
  bad.pieces[a].offset_bytes = 64;
  EXPECT_FALSE(said(bad).empty());
}

TEST_F(WrongPieces, PartsThatChangedPlaces) {
  Plan bad = good;
  bad.pieces[a].offset_bytes = 192;
  bad.pieces[c].offset_bytes = 0;
  expect_found(bad, "reads '" + graph.values[whole].name + "' after it was overwritten, or where it is not");
}

TEST_F(WrongPieces, MisalignedOrOutside) {
  Plan bad = good;
  bad.pieces[c].offset_bytes = 32;
  expect_found(bad, "misaligned");
  bad = good;
  bad.pieces[c].offset_bytes = 128;
  expect_found(bad, "reaches beyond its buffer");
  bad = good;
  bad.pieces[c].offset_bytes = -64;
  expect_found(bad, "misaligned");
}

TEST_F(WrongPieces, OtherRowsThanItsOwn) {
  Plan bad = good;
  bad.pieces[c].row_bytes -= 64;
  expect_found(bad, "has other rows");
  // In rows that leave gaps: not what its reader finds there.
  bad = good;
  bad.pieces[second] = {64, 3, 64, 128};
  EXPECT_FALSE(said(bad).empty());
  bad = good;
  bad.pieces[second] = {0, 3, 64, 64};
  expect_found(bad, "after it was overwritten, or where it is not");
  // Rows with nothing between them are the same bytes.
  bad = good;
  bad.pieces[second] = {64, 3, 64, 64};
  EXPECT_EQ(said(bad), "");
}

TEST_F(WrongPieces, TheWholeIsFreedEarly) {
  Plan bad = good;
  buffer(bad, e).last_step = 1;  // `second` is read at step 2
  expect_found(bad, "when its buffer is free");
  bad = good;
  buffer(bad, whole).first_step = 2;  // `a` is written at step 1
  expect_found(bad, "when its buffer is free");
}

TEST_F(WrongPieces, TheWholeIsOverwrittenWhileAPartIsRead) {
  Plan bad = good;
  buffer(bad, whole).offset = buffer(bad, e).offset;  // a over first
  EXPECT_FALSE(said(bad).empty());
  bad = good;
  bad.buffer_of[a] = bad.buffer_of[e];  // in place over the part, while the whole is read later
  bad.pieces[a] = bad.pieces[first];
  EXPECT_FALSE(said(bad).empty());
}

TEST_F(WrongPieces, APartThatIsNotWritten) {
  Plan bad = good;
  bad.buffer_of[a] = static_cast<std::int32_t>(bad.buffers.size());
  bad.buffers.push_back({Place::arena, bad.arena_bytes, 64, 0, 5});
  bad.arena_bytes += 64;
  bad.pieces.erase(a);
  expect_found(bad, "reads '" + graph.values[whole].name + "' after it was overwritten, or where it is not");
}

TEST_F(WrongPieces, AnotherNodeWithoutAKernel) {
  Plan bad = good;
  std::erase_if(bad.steps, [&](const PlanStep& step) { return step.node == graph.values[a].producer; });
  expect_found(bad, "is scheduled 0 times");
}

TEST_F(WrongPieces, AKernelThatRunsAsWellMustFindItsResultApart) {
  Plan bad = good;
  PlanStep step = bad.steps[1];
  step.node = graph.values[whole].producer;
  bad.steps.insert(bad.steps.end() - 2, step);
  EXPECT_FALSE(said(bad).empty());
}

TEST_F(WrongPieces, ABackwardsSliceHasNoBytesToPointAt) {
  const ValueId turned = b.op("Slice", {e, b.i64s({3}), b.i64s({-10}), b.i64s({0}), b.i64s({-1})});
  graph.outputs.push_back(b.op("Neg", {turned}));
  Plan bad = plan(true, false);
  std::erase_if(bad.steps, [&](const PlanStep& step) { return step.node == graph.values[turned].producer; });
  bad.buffer_of[turned] = bad.buffer_of[e];
  expect_found(bad, "takes elements that are no neighbours");
}

// What the optimizer writes over, read through a part: the checker sees the new contents.
TEST_F(WrongPieces, APartOfAStateReadAfterItsUpdate) {
  const ValueId acc = b.input("acc", rows, Role::state), part = slice(acc, 1, 3);
  const ValueId micro = b.input("micro", {DType::i64, {}}, Role::hyper);
  const ValueId next = b.op("Accumulate", {acc, x, micro}, {{"count", std::int64_t{1}}});
  graph.updates = {{acc, next}};
  const ValueId late = b.op("Mul", {part, slice(next, 1, 3)});
  graph.outputs.push_back(late);
  graph.nodes[graph.values[part].producer].rank = -1;
  Plan bad = plan(true, false);
  ASSERT_EQ(bad.pieces.count(part), 0u);
  const auto runs = [&](const PlanStep& step) { return step.node == graph.values[part].producer; };
  ASSERT_EQ(std::count_if(bad.steps.begin(), bad.steps.end(), runs), 1);
  for (Buffer& one : bad.buffers) one.last_step = static_cast<std::int32_t>(bad.steps.size());
  for (Buffer& one : bad.buffers) one.first_step = 0;
  std::erase_if(bad.steps, runs);
  bad.buffer_of[part] = bad.buffer_of[acc];
  bad.pieces[part] = {64, 1, 128, 0};
  expect_found(bad, "reads '" + graph.values[part].name + "' after it was overwritten, or where it is not");
}

// Moved by any multiple of the alignment, any part is somewhere else.
TEST_F(WrongPieces, EveryShiftOfEveryPartIsFound) {
  int found = 0, tried = 0;
  for (const auto& [value, piece] : good.pieces)
    for (std::int64_t at = 0; at + piece.rows * piece.row_bytes <= buffer(good, value).bytes;
         at += kAlignmentBytes) {
      if (at == piece.offset_bytes) continue;
      Plan bad = good;
      bad.pieces[value].offset_bytes = at;
      ++tried;
      found += said(bad).empty() ? 0 : 1;
    }
  EXPECT_EQ(found, tried);
  EXPECT_GE(tried, 8);
}

}  // namespace
}  // namespace gradloom
