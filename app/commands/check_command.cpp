// gradloom check: PASS | FAIL | UNSUPPORTED for every test folder under the paths.
#include <CLI/CLI.hpp>
#include <filesystem>

#include "app/check_samples.h"
#include "app/commands/commands.h"
#include "app/job.h"
#include "app/op_libraries.h"
#include "app/recipe_flags.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

struct CheckArguments {
  std::vector<std::string> paths;
  std::string samples;
  CheckOptions check;
  std::string passes = "default";
  std::vector<std::string> import_limits, ops;
  double rtol = 0, atol = 0;
  std::int64_t threads = 0;
};

// Prints results as they come and counts them.
class CheckReport {
 public:
  explicit CheckReport(const Output& out) : out_(out) {}

  void add(const CheckResult& r) {
    ++counts_[static_cast<int>(r.status)];
    out_.object({{"name", r.name},
                 {"status", check_status_name(r.status)},
                 {"reason", r.reason},
                 {"max_abs_err", r.max_abs_error},
                 {"max_rel_err", r.max_rel_error},
                 {"gradients", r.gradients}});
    char detail[96] = "";
    if (r.status == CheckStatus::pass)
      std::snprintf(detail, sizeof detail, " (%d gradients, max abs error %.2g)", r.gradients,
                    r.max_abs_error);
    out_.text(std::string(check_status_name(r.status)) + " " + escaped(r.name) +
              (r.reason.empty() ? detail : " (" + escaped(r.reason) + ")"));
  }

  Status finish() const {
    out_.text(std::to_string(counts_[0]) + " passed, " + std::to_string(counts_[1]) + " failed, " +
              std::to_string(counts_[2]) + " unsupported");
    if (counts_[1] > 0) return Error{Errc::check_failed, ""};
    return {};
  }

 private:
  const Output& out_;
  int counts_[3] = {};
};

}  // namespace

CommandRun declare_check(CLI::App& app) {
  auto options = std::make_shared<CheckArguments>();
  app.add_option("PATH", options->paths, "folders that are searched for test folders");
  app.add_option(
      "--samples", options->samples,
      "instead of folders, check the samples of operators whose names match this glob ('*': all; 'Softmax/last-*': some of one)");
  app.add_option("--passes", options->passes,
                 "passes to run before checking: default | none | name,name{option=value}");
  app.add_option("--precision", options->check.precision, "f32 or f64, with --samples also f16 and bf16");
  app.add_option("--device", options->check.device, "where to run: cpu | cuda:N | hip:N | host-gpu");
  app.add_option("--seed", options->check.seed, "seed of random operators");
  app.add_option("--threads", options->threads,
                 "number of CPU threads; 0 takes OMP_NUM_THREADS, else all processors");
  declare_import_limits(app, options->import_limits);
  declare_op_libraries(app, options->ops);
  CLI::Option* rtol = app.add_option("--rtol", options->rtol, "relative tolerance (default 1e-3)");
  CLI::Option* atol =
      app.add_option("--atol", options->atol, "absolute tolerance (default 1e-7, gradients 1e-5)");
  return [options, rtol, atol](CommandContext& context) -> Status {
    if (rtol->count()) options->check.rtol = options->rtol;
    if (atol->count()) options->check.atol = options->atol;
    TRY(load_op_libraries(options->ops));
    options->check.passes = TRY(parse_pipeline(options->passes));
    for (const auto& [name, n] : TRY(read_import_limits(options->import_limits)))
      TRY(set_limit(options->check.limits, name, n));
    const std::string& precision = options->check.precision;
    const bool half = (precision == "f16" || precision == "bf16") && !options->samples.empty();
    if (precision != "f32" && precision != "f64" && !half)
      return Error{Errc::usage, "--precision " + escaped(precision) +
                                    ": expected f32 or f64 (with --samples also f16 and bf16)"};
    TRY(open_device(options->check.device));
    TRY(apply_threads(options->threads));
    if (options->paths.empty() == options->samples.empty())
      return Error{Errc::usage, "give folders to check, or --samples"};
    CheckReport report(context.out);
    if (!options->samples.empty()) {
      for (const CheckResult& r : TRY(check_samples(options->samples, options->check))) report.add(r);
      return report.finish();
    }
    std::vector<std::string> folders;
    for (const std::string& path : options->paths) {
      const auto found = TRY(find_test_folders(path));
      folders.insert(folders.end(), found.begin(), found.end());
    }
    if (folders.empty()) return Error{Errc::bad_input, "no test folders found"};
    for (std::size_t i = 0; i < folders.size(); ++i) {
      if (context.stop.stop_requested()) return Error{Errc::interrupted, "interrupted"};
      context.out.progress("check", static_cast<double>(i) / static_cast<double>(folders.size()), folders[i]);
      const CheckResult r = check_folder(folders[i], options->check);
      context.out.progress_done();
      report.add(r);
    }
    return report.finish();
  };
}

}  // namespace gradloom
