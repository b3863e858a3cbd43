// The controller's exports of views: what a view shows, from the command that says the same, as a file.
#include <utility>

#include "app/desktop/controller.h"

namespace gradloom {

ViewSource Controller::view_source(std::vector<std::string> chosen) const {
  ViewSource source{.session = state_.session ? state_.session_path : std::string(),
                    .run = state_.run ? state_.run->record.summary.id : 0,
                    .more = std::move(chosen)};
  if (state_.model) source.recipe = state_.recipe;
  return source;
}

void Controller::export_view(const ViewDef& view, const ViewSource& source, const std::string& path) {
  if (view_export_) return notice(NoticeKind::warning, "a view is being written already");
  if (source.said) return write_view_export(view, path, source.said);
  std::vector<std::string> words = view_words(view, source);
  words.emplace_back("--json");
  auto child = start_child(words);
  if (!child) return notice(NoticeKind::error, child.error().message);
  view_export_ = ViewExport{std::move(child).value(), &view, path, {}};
}

void Controller::end_view_export() {
  if (!view_export_) return;
  ViewExport& made = *view_export_;
  if (made.child) {
    const bool over = !made.child->running();
    for (std::string& line : made.child->take_lines()) made.lines.push_back(std::move(line));
    if (!over) return;
    const ChildExit exit = made.child->exit();
    if (!exit.ok()) {
      notice(NoticeKind::error, exit.error);
      return view_export_.reset();
    }
  }
  write_view_export(*made.view, made.path, [lines = std::move(made.lines)] { return lines; });
  view_export_.reset();
}

void Controller::write_view_export(const ViewDef& view, const std::string& path,
                                   std::function<std::vector<std::string>()> said) {
  reader_->post("view " + path, "writing " + path,
                [this, &view, path, said = std::move(said)](std::stop_token) -> Worker::Publish {
                  const Status written = write_view(view, said(), path);
                  return [this, path, written] {
                    notice(written ? NoticeKind::good : NoticeKind::error,
                           written ? "Written to " + path : written.error().message);
                  };
                });
}

}  // namespace gradloom
