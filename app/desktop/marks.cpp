#include "app/desktop/marks.h"

#include <algorithm>
#include <filesystem>

#include "app/desktop/kept_json.h"
#include "engine/base/file.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using kept::integer_of;
using kept::Json;
using kept::number_of;
using kept::text_of;

constexpr std::int64_t kMostBytes = 16 << 20;

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

std::string marks_file(const std::string& folder, const std::string& model_hash) {
  return folder.empty() || model_hash.empty() ? std::string() : folder + "/" + model_hash + ".json";
}

Marks parse_marks(const std::string& json) {
  Marks marks;
  const Json root = Json::parse(json, nullptr, false);
  if (!root.is_object()) return marks;
  if (const auto list = root.find("bookmarks"); list != root.end() && list->is_array()) {
    for (const Json& item : *list) {
      if (!item.is_object()) continue;
      const std::int64_t slot = integer_of(item, "slot");
      Bookmark bookmark = bookmark_of(item);
      if (slot >= 1 && slot <= kBookmarks && !bookmark.graph.node.empty())
        marks.bookmarks[static_cast<std::size_t>(slot - 1)] = std::move(bookmark);
    }
  }
  if (const auto list = root.find("notes"); list != root.end() && list->is_array()) {
    for (const Json& item : *list) {
      if (!item.is_object()) continue;
      Note note = note_of(item);
      if (note.node.empty() && (note.run <= 0 || !(note.to_ns > note.from_ns))) continue;
      note.id = 0;  // ids are given anew: no two are equal
      put_note(marks.notes, std::move(note));
    }
  }
  return marks;
}

std::string marks_json(const Marks& marks) {
  Json bookmarks = Json::array(), notes = Json::array();
  for (int slot = 1; slot <= kBookmarks; ++slot)
    if (const auto& bookmark = marks.bookmarks[static_cast<std::size_t>(slot - 1)])
      bookmarks.push_back(bookmark_json(slot, *bookmark));
  for (const Note& note : marks.notes) notes.push_back(note_json(note));
  const Json root = {{"bookmarks", bookmarks}, {"notes", notes}};
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Marks load_marks(const std::string& path) {
  if (path.empty()) return {};
  const auto text = read_file_limited(path, kMostBytes);
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
