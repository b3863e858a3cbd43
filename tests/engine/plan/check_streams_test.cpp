// The checker of streams against plans that are wrong in one place each.
#include "engine/plan/check_streams.h"

#include "tests/engine/plan/offloaded_plan.h"

namespace gradloom {
namespace {

void expect_found(OffloadedPlan& p, const std::string& text, bool whole = false) {
  const Status status = whole ? check_plan(p.graph, p.plan) : check_streams(p.graph, p.plan);
  ASSERT_FALSE(status.ok()) << text;
  EXPECT_EQ(status.error().code, Errc::bug);
  EXPECT_NE(status.error().message.find(text), std::string::npos) << status.error().message;
}

TEST(CheckStreams, AValidPlanIsValid) {
  OffloadedPlan p;
  EXPECT_TRUE(check_streams(p.graph, p.plan).ok());
  p.buffer(p.back).offset = p.buffer(p.a).offset;  // which is free by then
  EXPECT_TRUE(check_plan(p.graph, p.plan).ok()) << check_plan(p.graph, p.plan).error().message;
}

TEST(CheckStreams, ACopyThatDoesNotWaitForWhatMakesItsSource) {
  OffloadedPlan p;
  p.step(p.away).waits.clear();
  expect_found(p, "step 1 ('CopyToHost', stream 2) does not wait for step 0");
}

TEST(CheckStreams, ACopyBackThatDoesNotWaitForTheCopyOut) {
  OffloadedPlan p;
  p.step(p.d).waits.clear();
  expect_found(p, "stream 1) does not wait for step 1");
}

TEST(CheckStreams, ACopyBackThatWaitsForNothing) {
  OffloadedPlan p;
  p.step(p.back).waits.clear();
  expect_found(p, "stream 1) does not wait for step 1");
}

TEST(CheckStreams, AReaderThatDoesNotWaitForTheCopyBack) {
  OffloadedPlan p;
  p.step(p.y).waits.clear();
  expect_found(p, "step 6 ('Mul', stream 0) does not wait for step 4");
}

TEST(CheckStreams, ACopyIntoMemoryThatIsStillRead) {
  OffloadedPlan p;
  p.step(p.back).waits = {1};  // for the copy out alone, not for what reads c
  EXPECT_TRUE(check_streams(p.graph, p.plan).ok()) << "its target is its own";
  p.buffer(p.back).offset = p.buffer(p.c).offset;
  expect_found(p, "stream 1) does not wait for step");
}

TEST(CheckStreams, ASourceThatIsOverwrittenWhileItIsCopied) {
  OffloadedPlan p;
  p.plan.buffer_of[p.c] = p.plan.buffer_of[p.a];
  expect_found(p, "step 2 ('Exp_1', stream 0) does not wait for step 1");
}

TEST(CheckStreams, AResultOverASourceWithoutItsJoin) {
  OffloadedPlan p;
  p.step(p.d).waits.clear();
  p.step(p.back).waits = {1, 3};  // knows of the copy out by itself
  EXPECT_TRUE(check_streams(p.graph, p.plan).ok());
  p.plan.buffer_of[p.d] = p.plan.buffer_of[p.a];  // free only where something waited for the copy out
  expect_found(p, "step 3 ('Exp_2', stream 0) does not wait for step 1");
}

TEST(CheckStreams, WorkspaceOverWhatIsBeingFilled) {
  OffloadedPlan p;
  p.step(p.e).workspace_offset = p.buffer(p.back).offset;
  p.step(p.e).workspace_bytes = 64;
  expect_found(p, "step 5 ('Exp_3', stream 0) does not wait for step 4");
}

TEST(CheckStreams, AWaitForALaterStep) {
  OffloadedPlan p;
  p.step(p.away).waits = {5};
  expect_found(p, "waits for a step that comes later");
}

TEST(CheckStreams, AWaitForAStepOfTheSameStream) {
  OffloadedPlan p;
  p.step(p.e).waits = {0};
  expect_found(p, "waits for a step of its own stream");
}

TEST(CheckStreams, WaitsOutOfOrder) {
  OffloadedPlan p;
  p.step(p.y).waits = {4, 1};
  expect_found(p, "its waits are not in order");
  p.step(p.y).waits = {-2, 4};
  expect_found(p, "its waits are not in order");
}

TEST(CheckStreams, AWaitThatLeavesTheMicroBatch) {
  OffloadedPlan p;
  p.step(p.y).micro = false;
  expect_found(p, "waits for a step outside the micro-batch");
  p.step(p.y).waits.clear();
  EXPECT_TRUE(check_streams(p.graph, p.plan).ok()) << "which ends when all streams have";
}

TEST(CheckStreams, ACopyAmongTheExchanges) {
  OffloadedPlan p;
  p.step(p.away).stream = kExchangeStream;
  expect_found(p, "begins no exchange between ranks");
}

TEST(CheckStreams, AStreamThatDoesNotExist) {
  OffloadedPlan p;
  p.step(p.away).stream = kStreamCount;
  expect_found(p, "there is no such stream");
  p.step(p.away).stream = -1;
  expect_found(p, "there is no such stream");
}

TEST(CheckStreams, AKernelBesideTheComputeStream) {
  OffloadedPlan p;
  p.step(p.c).stream = kUploadStream;
  expect_found(p, "is no copy, and only copies run on that stream");
}

TEST(CheckStreams, ACopyInTheWrongDirection) {
  OffloadedPlan p;
  p.step(p.away).stream = kUploadStream;
  expect_found(p, "is on the stream of the other direction");
}

TEST(CheckStreams, WhatLeavesMustLieInTheHostsMemory) {
  OffloadedPlan p;
  p.buffer(p.away).place = Place::arena;
  expect_found(p, "which is not in the host's memory");
}

TEST(CheckStreams, KernelsDoNotTouchTheHostsMemory) {
  OffloadedPlan p;
  p.buffer(p.c).place = Place::host;
  expect_found(p, "writes 'Exp:v_1', which is in the host's memory");
}

TEST(CheckStreams, WhatIsAwayKeepsItsPlaceInTheHostsMemory) {
  OffloadedPlan p;
  p.buffer(p.away).offset = 64;
  expect_found(p, "outside its block", true);
}

TEST(CheckStreams, TwoValuesAwayAtOnceHavePlacesOfTheirOwn) {
  OffloadedPlan p;
  GraphBuilder b(p.graph);
  const ValueId away = b.op("CopyToHost", {p.c});
  p.graph.outputs = {b.op("Mul", {p.y, b.op("CopyFromHost", {away})})};
  p.make();
  ASSERT_EQ(p.plan.host_bytes, 8192);
  EXPECT_TRUE(check_plan(p.graph, p.plan).ok()) << check_plan(p.graph, p.plan).error().message;
  p.buffer(away).offset = p.buffer(p.away).offset;
  expect_found(p, "and both touch the memory of 'CopyToHost:v'", true);
}

}  // namespace
}  // namespace gradloom
