// Tables trial and configuration: what `tune` measured, and what it knows of it besides.
#include "engine/base/text.h"
#include "sessions/store_impl.h"

namespace gradloom {

namespace {
std::string trial_digest(const Trial& t, const std::string& created_utc) {
  RowHash hash;
  for (const std::string* text : {&created_utc, &t.job, &t.changes, &t.plan_hash, &t.recipe_json})
    hash.add(std::string_view(*text));
  for (const std::int64_t number : {t.round, t.peak_bytes}) hash.add(number);
  for (const double number : {t.ratio.value, t.ratio.low, t.ratio.high, t.step_ns, t.predicted_ns})
    hash.add(number);
  return hash.hex();
}
}  // namespace

Status Store::add_trial(const Trial& t) {
  const std::string created_utc = utc_timestamp();
  const auto write = [&]() -> Status {
    TRY(impl_->file_in_place());
    TRY(impl_->database.require_free_id("trial"));
    Statement insert =
        TRY(impl_->database.prepare("INSERT INTO trial VALUES (NULL,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
    return insert.run({std::string_view(created_utc), std::string_view(t.job), std::string_view(t.changes),
                       std::string_view(t.plan_hash), t.round, t.ratio.value, t.ratio.low, t.ratio.high,
                       t.step_ns, t.predicted_ns, t.peak_bytes, std::string_view(t.recipe_json),
                       std::string_view(trial_digest(t, created_utc))});
  };
  const Status status = write();
  if (!status.ok()) return impl_->error(status.error());
  return {};
}

Result<std::vector<Trial>> Store::list_trials(const std::string& job) {
  return impl_->on_snapshot([&]() -> Result<std::vector<Trial>> {
    std::vector<Trial> trials;
    if (TRY(impl_->version()) < 4) return trials;
    Statement row = TRY(impl_->database.prepare(
        "SELECT created_utc, job, changes, plan_hash, round, ratio, ratio_low, ratio_high, step_ns, "
        "predicted_ns, peak_bytes, recipe, digest FROM (SELECT * FROM trial WHERE ?1 = '' OR job = ?1 "
        "ORDER BY id DESC LIMIT 20000) ORDER BY id"));  // the newest
    row.bind(1, std::string_view(job));
    while (TRY(row.row())) {
      Trial t{
          row.text(1), row.text(2), row.text(3),     row.integer(4), {row.real(5), row.real(6), row.real(7)},
          row.real(8), row.real(9), row.integer(10), row.text(11)};
      if (row.text(12) == trial_digest(t, row.text(0))) trials.push_back(std::move(t));
    }
    return trials;
  });
}

namespace {
std::string configuration_digest(const TriedConfiguration& c, const std::string& created_utc) {
  RowHash hash;
  for (const std::string* text : {&created_utc, &c.job, &c.changes, &c.label, &c.plan_hash, &c.recipe_json})
    hash.add(std::string_view(*text));
  hash.add(c.peak_bytes);
  for (const double number : {c.step_ns, c.predicted, c.error}) hash.add(number);
  return hash.hex();
}
}  // namespace

Status Store::add_configuration(const TriedConfiguration& c) {
  const std::string created_utc = utc_timestamp();
  const auto write = [&]() -> Status {
    TRY(impl_->file_in_place());
    TRY(impl_->database.require_free_id("configuration"));
    Statement insert =
        TRY(impl_->database.prepare("INSERT INTO configuration VALUES (NULL,?,?,?,?,?,?,?,?,?,?,?)"));
    return insert.run({std::string_view(created_utc), std::string_view(c.job), std::string_view(c.changes),
                       std::string_view(c.label), std::string_view(c.plan_hash), c.peak_bytes, c.step_ns,
                       c.predicted, c.error, std::string_view(c.recipe_json),
                       std::string_view(configuration_digest(c, created_utc))});
  };
  const Status status = write();
  if (!status.ok()) return impl_->error(status.error());
  return {};
}

Result<std::vector<TriedConfiguration>> Store::list_configurations(const std::string& job) {
  return impl_->on_snapshot([&]() -> Result<std::vector<TriedConfiguration>> {
    std::vector<TriedConfiguration> all;
    if (TRY(impl_->version()) < 10) return all;
    Statement row = TRY(impl_->database.prepare(
        "SELECT created_utc, job, changes, label, plan_hash, peak_bytes, step_ns, predicted, error, recipe, "
        "digest FROM (SELECT * FROM configuration WHERE ?1 = '' OR job = ?1 ORDER BY id DESC LIMIT 20000) "
        "ORDER BY id"));  // the newest
    row.bind(1, std::string_view(job));
    while (TRY(row.row())) {
      TriedConfiguration c{row.text(1), row.text(2), row.text(3), row.text(4), row.integer(5),
                           row.real(6), row.real(7), row.real(8), row.text(9)};
      if (row.text(10) == configuration_digest(c, row.text(0))) all.push_back(std::move(c));
    }
    return all;
  });
}

}  // namespace gradloom
