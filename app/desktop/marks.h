// What the user left on a model: nine bookmarks, notes on nodes and on times of recorded runs, pinned trials of tune; and
// what verify said of it, which no session holds. One JSON file per model, data_folder()/marks/HASH.json, written atomically and read tolerantly: an entry that cannot
// be read is left out. A session is a recording and is not touched by what is written about it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "viz/model/graph_marks.h"

namespace gradloom {

constexpr int kBookmarks = 9;
constexpr std::size_t kMostNotes = 1000;
constexpr std::size_t kMostNoteBytes = 4096;

struct Bookmark {
  std::string tab;  // shown in the pane of the graph
  int stage = 2;    // GraphStage
  GraphPlace graph;
  bool operator==(const Bookmark&) const = default;
};

struct Note {
  std::int64_t id = 0;  // 0: not kept yet
  std::string text;
  std::string node;  // empty: on a time
  std::string session;
  std::int64_t run = 0, step = 0;
  double from_ns = 0, to_ns = 0;  // from the start of the step
  std::string created_utc;
  bool operator==(const Note&) const = default;
};

// A configuration of a search that is to stay in sight.
struct Pin {
  std::string job;      // job_hash of the search's job
  std::string changes;  // from it; empty: the job itself
  bool operator==(const Pin&) const = default;
};
constexpr std::size_t kMostPins = 1000;

// What `verify` found of a recipe.
struct Proof {
  std::string job;  // job_hash of the recipe
  std::string created_utc;
  bool equal = false;
  std::vector<std::string> passes;  // that were on
  std::int64_t instances = 0, tensors = 0, steps = 0;
  std::string kind, tensor;     // the nearest to its bound, or the furthest beyond
  double error = 0, bound = 0;  // of it
  std::string culprit, site;    // what strays; empty: nothing
  bool operator==(const Proof&) const = default;
};
constexpr std::size_t kMostProofs = 50;  // the oldest go

struct Marks {
  std::array<std::optional<Bookmark>, kBookmarks> bookmarks;
  std::vector<Note> notes;  // oldest first
  std::vector<Pin> pins;
  std::vector<Proof> proofs;  // oldest first; of one job the last that was made
  bool operator==(const Marks&) const = default;
};

// What a note is on: the node, or "1.2 ms to 1.4 ms of step 5, run 2".
std::string note_subject(const Note& note);
// Adds the note, or replaces the one with its id; an empty text takes it away. The id of the note, 0 when it
// is gone or there are too many.
std::int64_t put_note(std::vector<Note>& notes, Note note);

// Adds what was proved; what was known of the same job goes.
void put_proof(std::vector<Proof>& proofs, Proof proof);

std::string marks_file(const std::string& folder, const std::string& model_hash);  // empty when either is
Marks parse_marks(const std::string& json);
std::string marks_json(const Marks& marks);
Marks load_marks(const std::string& path);
Status save_marks(const Marks& marks, const std::string& path);  // makes the folder

}  // namespace gradloom
