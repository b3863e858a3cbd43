#include "sessions/predictions.h"

#include "engine/base/text.h"
#include "sessions/store_impl.h"

namespace gradloom {
namespace {

std::string digest_of(const KeptPrediction& p) {
  RowHash hash;
  for (const std::string* text : {&p.created_utc, &p.question, &p.plan_hash, &p.hardware, &p.recipe_json})
    hash.add(std::string_view(*text));
  for (const double number : {p.step_ns, p.predicted_ns, p.low_ns, p.high_ns}) hash.add(number);
  return hash.hex();
}

}  // namespace

Status Store::add_prediction(const KeptPrediction& prediction) {
  KeptPrediction p = prediction;
  p.created_utc = utc_timestamp();
  const auto write = [&]() -> Status {
    TRY(impl_->file_in_place());
    TRY(impl_->database.require_free_id("prediction"));
    Statement insert =
        TRY(impl_->database.prepare("INSERT INTO prediction VALUES (NULL,?,?,?,?,?,?,?,?,?,?)"));
    return insert.run({std::string_view(p.created_utc), std::string_view(p.question),
                       std::string_view(p.plan_hash), std::string_view(p.hardware), p.step_ns, p.predicted_ns,
                       p.low_ns, p.high_ns, std::string_view(p.recipe_json), std::string_view(digest_of(p))});
  };
  const Status status = write();
  if (!status.ok()) return impl_->error(status.error());
  return {};
}

Result<std::vector<KeptPrediction>> Store::list_predictions() {
  return impl_->on_snapshot([&]() -> Result<std::vector<KeptPrediction>> {
    std::vector<KeptPrediction> all;
    if (TRY(impl_->version()) < 9) return all;
    Statement row = TRY(impl_->database.prepare(
        "SELECT created_utc, question, plan_hash, hardware, step_ns, predicted_ns, low_ns, high_ns, recipe, "
        "digest FROM prediction ORDER BY id LIMIT 20000"));
    while (TRY(row.row())) {
      KeptPrediction p{.question = row.text(1),
                       .plan_hash = row.text(2),
                       .hardware = row.text(3),
                       .step_ns = row.real(4),
                       .predicted_ns = row.real(5),
                       .low_ns = row.real(6),
                       .high_ns = row.real(7),
                       .recipe_json = row.text(8),
                       .created_utc = row.text(0)};
      if (row.text(9) == digest_of(p)) all.push_back(std::move(p));
    }
    return all;
  });
}

}  // namespace gradloom
