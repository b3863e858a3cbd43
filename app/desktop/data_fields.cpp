// The form of a setting that says where batches come from: the data to train on, and the held-out ones.
#include <algorithm>

#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

struct DataKind {
  const char *label, *spec, *help;
  std::vector<std::string> files;  // their extensions; empty: any
  bool folder = false;             // of files, too
};

const std::vector<DataKind>& data_kinds() {
  static const std::vector<DataKind> kinds{
      {"synthetic", "synthetic", "Random and repeatable, without an end", {}},
      {"npz",
       "npz:",
       "A file, or a folder of files, of arrays named as the inputs, with one more leading axis: the batch",
       {".npz"},
       true},
      {"npy", "npy:", "An array for each input, read where it lies: batches or samples", {".npy"}},
      {"tokens", "tokens:", "Bytes of a file; labels are those that follow", {}},
      {"tokens, 2 bytes",
       "tokens{bytes=2}:",
       "Little-endian numbers of a file; labels are those that follow",
       {}},
      {"tokens, 4 bytes",
       "tokens{bytes=4}:",
       "Little-endian numbers of a file; labels are those that follow",
       {}}};
  return kinds;
}

// The kind of a text: of "tokens{..}:" in another writing, the plain one. Null: no data.
const DataKind* kind_of(const std::string& data) {
  const std::string spec = split_data(data).first, word = spec.substr(0, spec.find_first_of(":{"));
  const DataKind* found = nullptr;
  for (const DataKind& kind : data_kinds()) {
    if (spec == kind.spec) return &kind;
    if (found == nullptr && std::string(kind.spec).starts_with(word) && !word.empty()) found = &kind;
  }
  return found;
}

// "x=a.npy,labels=b.npy" by input, in the order of the model's inputs; what is no pair is left out.
std::vector<std::pair<std::string, std::string>> files_by_input(const AppState& s, const std::string& files) {
  std::vector<std::pair<std::string, std::string>> all;
  if (s.plan)
    for (const InputSpec& input : s.plan->inputs) all.emplace_back(input.name, "");
  for (const std::string& part : split_top_level(files)) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = part.substr(0, equals), file = part.substr(equals + 1);
    const auto known = std::find_if(all.begin(), all.end(), [&](const auto& f) { return f.first == name; });
    if (known != all.end())
      known->second = file;
    else
      all.emplace_back(name, file);
  }
  return all;
}

std::string npy_data(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string text;
  for (const auto& [input, file] : files)
    if (!file.empty()) text += (text.empty() ? "" : ",") + input + "=" + file;
  return "npy:" + text;
}

}  // namespace

void data_fields(Ui& ui, const FieldProblems& problems, const RecipeSetting& setting) {
  const auto member = std::get<std::string Recipe::*>(setting.member);
  const std::string data = ui.state().recipe.*member, file = split_data(data).second,
                    id = std::string("run.") + setting.key, name = setting.label;
  const bool optional = (Recipe().*member).empty();
  const auto set = [&ui, member, name](const std::string& text) {
    ui.app.edit(name + " " + (text.empty() ? "none" : text), [&](Recipe& r) { r.*member = text; });
  };
  const DataKind* const kind = data.empty() ? nullptr : kind_of(data);
  std::vector<std::string> labels;
  std::vector<ChoiceNote> notes;
  if (optional) {
    labels.emplace_back("none");
    notes.emplace_back();
  }
  for (const DataKind& k : data_kinds()) {
    labels.emplace_back(k.label);
    notes.push_back({k.help});
  }
  field_label(setting.label, help_of(setting));
  int index = static_cast<int>(
      std::find(labels.begin(), labels.end(), kind != nullptr ? kind->label : "none") - labels.begin());
  if (combo(id, &index, labels, -1, notes)) {
    const int at = index - (optional ? 1 : 0);
    const DataKind* const next = at < 0 ? nullptr : &data_kinds()[static_cast<std::size_t>(at)];
    const bool keeps = kind != nullptr && next != nullptr && std::string(next->spec).ends_with(":") &&
                       (std::string(kind->spec) == "npy:") == (std::string(next->spec) == "npy:");
    set(next == nullptr ? "" : next->spec + (keeps ? file : ""));
  }
  field_problem(problems, setting.key);
  if (kind == nullptr || !std::string(kind->spec).ends_with(":")) return;
  const FileDialog::Options options{
      std::string(setting.label) + (kind->folder ? ": file or folder" : ": file"),
      "Choose",
      kind->files,
      false,
      "",
      kind->folder};
  if (std::string(kind->spec) != "npy:") {
    ImGui::TableNextColumn();
    field_label(kind->folder ? "File or folder" : "File", kind->help);
    path_field(ui, id + ".file", "path", file, options,
               [set, spec = split_data(data).first](const std::string& path) { set(spec + path); });
    return;
  }
  const auto files = files_by_input(ui.state(), file);
  for (std::size_t i = 0; i < files.size(); ++i) {
    ImGui::TableNextColumn();
    field_label("File of " + files[i].first, kind->help);
    path_field(ui, id + ".file." + files[i].first, "path", files[i].second, options,
               [set, files, i](const std::string& path) {
                 auto changed = files;
                 changed[i].second = path;
                 set(npy_data(changed));
               });
  }
}

}  // namespace gradloom
