#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "app/desktop/marks.h"
#include "tests/folder.h"

namespace gradloom {
namespace {

Marks sample() {
  Marks marks;
  Bookmark at;
  at.tab = "Graph";
  at.stage = 1;
  at.graph = {"blocks.0/fc/MatMul", -12.5f, 3, 0.75f, {"blocks", "blocks.0"}, {"a", "b \"c\""}};
  marks.bookmarks[2] = at;
  Note node;
  node.text = "slow since \xc3\xa9";
  node.node = "a";
  node.created_utc = "2026-11-20T04:31:05Z";
  put_note(marks.notes, node);
  Note time;
  time.text = "gap";
  time.session = "/s.db";
  time.run = 2;
  time.step = 5;
  time.from_ns = 1200000;
  time.to_ns = 1400000.5;
  put_note(marks.notes, time);
  marks.pins = {{"job", "passes=none"}, {"job", ""}};
  put_proof(
      marks.proofs,
      {"job", "2026-11-28T10:00:00Z", false, {"a", "b"}, 7, 12, 3, "gradient", "w", 2e-3, 1e-6, "a", "/x"});
  return marks;
}

TEST(DesktopMarks, SurviveARoundTrip) {
  const Marks marks = sample();
  EXPECT_EQ(parse_marks(marks_json(marks)), marks);
  EXPECT_EQ(parse_marks(marks_json({})), Marks());
}

TEST(DesktopMarks, OfEachJobTheLastProofIsKept) {
  std::vector<Proof> proofs;
  Proof proof;
  for (std::size_t i = 0; i < kMostProofs + 2; ++i) {
    proof.job = "job " + std::to_string(i);
    put_proof(proofs, proof);
  }
  EXPECT_EQ(proofs.size(), kMostProofs);
  EXPECT_EQ(proofs.front().job, "job 2") << "the oldest go";
  proof.job = "job 5";
  proof.equal = true;
  put_proof(proofs, proof);
  EXPECT_EQ(proofs.size(), kMostProofs);
  EXPECT_EQ(proofs.back().job, "job 5");
  EXPECT_TRUE(parse_marks(R"({"pins":[3,{"job":""}],"proofs":[{},{"job":7},"x"]})").pins.empty());
  EXPECT_TRUE(parse_marks(R"({"pins":7,"proofs":[{},{"job":7},"x"]})").proofs.empty());
}

TEST(DesktopMarks, NotesAreAddedReplacedAndTakenAway) {
  std::vector<Note> notes = sample().notes;
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0].id, 1);
  EXPECT_EQ(notes[1].id, 2);
  Note changed = notes[0];
  changed.text = "fixed";
  EXPECT_EQ(put_note(notes, changed), 1);
  EXPECT_EQ(notes[0].text, "fixed");
  changed.text.clear();
  EXPECT_EQ(put_note(notes, changed), 0);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(put_note(notes, changed), 0);  // a new one without a text is none
  EXPECT_EQ(notes.size(), 1u);
  changed.id = 0;
  changed.text = "third";
  EXPECT_EQ(put_note(notes, changed), 3);
}

TEST(DesktopMarks, AreBounded) {
  std::vector<Note> notes;
  Note note;
  note.node = "a";
  note.text = std::string(kMostNoteBytes - 1, 'x') + "\xc3\xa9";  // the last character does not fit
  put_note(notes, note);
  EXPECT_EQ(notes[0].text, std::string(kMostNoteBytes - 1, 'x'));
  note.text = "x";
  while (notes.size() < kMostNotes) ASSERT_NE(put_note(notes, note), 0);
  EXPECT_EQ(put_note(notes, note), 0);
  EXPECT_EQ(notes.size(), kMostNotes);
}

TEST(DesktopMarks, SubjectsReadAsASentence) {
  const Marks marks = sample();
  EXPECT_EQ(note_subject(marks.notes[0]), "a");
  EXPECT_EQ(note_subject(marks.notes[1]), "1.20 ms to 1.40 ms of step 5, run 2");
}

TEST(DesktopMarks, WhatCannotBeReadIsLeftOut) {
  EXPECT_EQ(parse_marks(""), Marks());
  EXPECT_EQ(parse_marks("{\"notes\": 3, \"bookmarks\": {}}"), Marks());
  const Marks marks = parse_marks(R"({
    "bookmarks": [1, {"slot": 0, "node": "a"}, {"slot": 10, "node": "a"}, {"slot": 3}, {"slot": 4, "node": "a",
      "zoom": 1e300, "stage": 77, "dx": "left", "expanded": [1, "s"], "selection": "b"}],
    "notes": [null, {"text": "on nothing"}, {"text": "", "node": "a"}, {"text": "t", "run": 1, "from_ns": 5, "to_ns": 5},
      {"id": 7, "text": "kept", "node": "a"}, {"id": 7, "text": "too", "node": "b"}]})");
  ASSERT_TRUE(marks.bookmarks[3]);
  EXPECT_EQ(marks.bookmarks[3]->stage, 2);
  EXPECT_EQ(marks.bookmarks[3]->graph.zoom, 1);
  EXPECT_EQ(marks.bookmarks[3]->graph.expanded, std::vector<std::string>{"s"});
  EXPECT_FALSE(marks.bookmarks[2]);
  ASSERT_EQ(marks.notes.size(), 2u);
  EXPECT_NE(marks.notes[0].id, marks.notes[1].id);
}

TEST(DesktopMarks, FilesAreByModel) {
  EXPECT_EQ(marks_file("/d/marks", "abc"), "/d/marks/abc.json");
  EXPECT_EQ(marks_file("", "abc"), "");
  EXPECT_EQ(marks_file("/d", ""), "");
  const TemporaryFolder folder;
  const std::string path = marks_file(folder / "sub", "abc");
  EXPECT_EQ(load_marks(path), Marks());
  ASSERT_TRUE(save_marks(sample(), path).ok());
  EXPECT_EQ(load_marks(path), sample());
  std::ofstream(folder / "file") << "x";
  EXPECT_FALSE(save_marks(sample(), folder / "file/abc.json").ok());
}

}  // namespace
}  // namespace gradloom
