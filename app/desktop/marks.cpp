#include "app/desktop/marks.h"

#include <algorithm>
#include <filesystem>

#include "app/desktop/kept_json.h"
#include "engine/base/file.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using kept::names_of;

constexpr std::int64_t kMostMarkBytes = 16 << 20;

Json bookmark_json(int slot, const Bookmark& bookmark) {
  Json object = {{"slot", slot}, {"tab", bookmark.tab}, {"stage", bookmark.stage}};
  kept::put_place(object, bookmark.graph);
  return object;
}

Bookmark bookmark_of(const Json& object) {
  Bookmark bookmark;
  bookmark.tab = text_of(object, "tab");
  bookmark.stage = static_cast<int>(std::clamp<std::int64_t>(integer_of(object, "stage"), 0, 2));
  bookmark.graph = kept::place_of(object);
  return bookmark;
}

Json note_json(const Note& note) {
  Json object = {{"id", note.id}, {"text", note.text}, {"created", note.created_utc}};
  if (!note.node.empty()) {
    object["node"] = note.node;
  } else {
    object["session"] = note.session;
    object["run"] = note.run;
    object["step"] = note.step;
    object["from_ns"] = note.from_ns;
    object["to_ns"] = note.to_ns;
  }
  return object;
}

Note note_of(const Json& object) {
  Note note;
  note.id = integer_of(object, "id");
  note.text = text_of(object, "text");
  note.node = text_of(object, "node");
  note.session = text_of(object, "session");
  note.run = integer_of(object, "run");
  note.step = integer_of(object, "step");
  note.from_ns = number_of(object, "from_ns");
  note.to_ns = number_of(object, "to_ns");
  note.created_utc = text_of(object, "created");
  return note;
}

Json proof_json(const Proof& p) {
  return {{"job", p.job},       {"created", p.created_utc}, {"equal", p.equal},
          {"passes", p.passes}, {"instances", p.instances}, {"tensors", p.tensors},
          {"steps", p.steps},   {"kind", p.kind},           {"tensor", p.tensor},
          {"error", p.error},   {"bound", p.bound},         {"culprit", p.culprit},
          {"site", p.site}};
}

Proof proof_of(const Json& object) {
  Proof p;
  p.job = text_of(object, "job");
  p.created_utc = text_of(object, "created");
  p.equal = flag_of(object, "equal");
  p.passes = names_of(object, "passes");
  p.instances = integer_of(object, "instances");
  p.tensors = integer_of(object, "tensors");
  p.steps = integer_of(object, "steps");
  p.kind = text_of(object, "kind");
  p.tensor = text_of(object, "tensor");
  p.error = number_of(object, "error");
  p.bound = number_of(object, "bound");
  p.culprit = text_of(object, "culprit");
  p.site = text_of(object, "site");
  return p;
}

}  // namespace

std::string note_subject(const Note& note) {
  if (!note.node.empty()) return note.node;
  return duration_text(note.from_ns) + " to " + duration_text(note.to_ns) + " of step " +
         std::to_string(note.step) + ", run " + std::to_string(note.run);
}

std::int64_t put_note(std::vector<Note>& notes, Note note) {
  const auto known = std::find_if(notes.begin(), notes.end(),
                                  [&](const Note& n) { return note.id != 0 && n.id == note.id; });
  if (note.text.empty()) {
    if (known != notes.end()) notes.erase(known);
    return 0;
  }
  if (note.text.size() > kMostNoteBytes) {
    std::size_t end = kMostNoteBytes;  // not inside a character
    while (end > 0 && (static_cast<unsigned char>(note.text[end]) & 0xc0) == 0x80) --end;
    note.text.resize(end);
  }
  if (known != notes.end()) {
    *known = note;
    return note.id;
  }
  if (notes.size() >= kMostNotes) return 0;
  std::int64_t largest = 0;
  for (const Note& n : notes) largest = std::max(largest, n.id);
  note.id = largest + 1;
  notes.push_back(note);
  return note.id;
}

void put_proof(std::vector<Proof>& proofs, Proof proof) {
  std::erase_if(proofs, [&](const Proof& known) { return known.job == proof.job; });
  if (proofs.size() >= kMostProofs) proofs.erase(proofs.begin());
  proofs.push_back(std::move(proof));
}

std::string marks_file(const std::string& folder, const std::string& model_hash) {
  return folder.empty() || model_hash.empty() ? std::string() : folder + "/" + model_hash + ".json";
}

Marks parse_marks(const std::string& json) {
  Marks marks;
  const Json root = Json::parse(json, nullptr, false);
  if (!root.is_object()) return marks;
  for (const Json& item : objects_of(root, "bookmarks")) {
    const std::int64_t slot = integer_of(item, "slot");
    Bookmark bookmark = bookmark_of(item);
    if (slot >= 1 && slot <= kBookmarks && !bookmark.graph.node.empty())
      marks.bookmarks[static_cast<std::size_t>(slot - 1)] = std::move(bookmark);
  }
  for (const Json& item : objects_of(root, "notes")) {
    Note note = note_of(item);
    if (note.node.empty() && (note.run <= 0 || !(note.to_ns > note.from_ns))) continue;
    note.id = 0;  // ids are given anew: no two are equal
    put_note(marks.notes, std::move(note));
  }
  for (const Json& item : objects_of(root, "pins"))
    if (Pin pin{text_of(item, "job"), text_of(item, "changes")};
        !pin.job.empty() && marks.pins.size() < kMostPins)
      marks.pins.push_back(std::move(pin));
  for (const Json& item : objects_of(root, "proofs"))
    if (Proof proof = proof_of(item); !proof.job.empty()) put_proof(marks.proofs, std::move(proof));
  return marks;
}

std::string marks_json(const Marks& marks) {
  Json bookmarks = Json::array(), notes = Json::array();
  for (int slot = 1; slot <= kBookmarks; ++slot)
    if (const auto& bookmark = marks.bookmarks[static_cast<std::size_t>(slot - 1)])
      bookmarks.push_back(bookmark_json(slot, *bookmark));
  for (const Note& note : marks.notes) notes.push_back(note_json(note));
  Json pins = Json::array(), proofs = Json::array();
  for (const Pin& pin : marks.pins) pins.push_back({{"job", pin.job}, {"changes", pin.changes}});
  for (const Proof& proof : marks.proofs) proofs.push_back(proof_json(proof));
  const Json root = {{"bookmarks", bookmarks}, {"notes", notes}, {"pins", pins}, {"proofs", proofs}};
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Marks load_marks(const std::string& path) {
  if (path.empty()) return {};
  const auto text = read_file_limited(path, kMostMarkBytes);
  return text ? parse_marks(*text) : Marks();
}

Status save_marks(const Marks& marks, const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return Error{Errc::io, "notes: " + path + ": " + error.message()};
  return atomic_write_file(path, marks_json(marks));
}

}  // namespace gradloom
