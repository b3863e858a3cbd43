#include "app/verify.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "app/recipe_flags.h"
#include "engine/base/npz.h"
#include "engine/base/text.h"
#include "engine/onnx/export.h"
#include "passes/precision.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kNudged = 8;  // runs that tell how unsure the precision is

// The spacing of the precision's numbers at 1.
double unit_of(const std::string& text) {
  const std::string precision = precision_type_name(text);
  if (precision == "f64") return 0x1p-52;
  if (precision == "f16") return 0x1p-10;
  return precision == "bf16" ? 0x1p-7 : 0x1p-23;
}

class Verifier {
 public:
  Verifier(const std::shared_ptr<const Prepared>& job, const VerifyOptions& options, std::stop_token stop,
           const std::function<void(const std::string&)>& progress)
      : job_(job),
        options_(options),
        stop_(std::move(stop)),
        progress_(progress),
        unit_(unit_of(job->recipe.precision)),
        all_{job->options.pipeline,
             job->options.planner,
             job->options.in_place,
             job->options.pieces,
             job->options.memory_budget_bytes,
             job->options.recompute,
             job->options.offload} {
    measure_.steps = options.steps;
  }

  Result<Verification> run() {
    Verification result;
    for (const PassConfig& pass : all_.pipeline.passes) result.passes.emplace_back(pass.def->name);
    for (const PassReport& report : job_->compiled.reports) result.instances += report.matched;
    TRY(measure_references());
    tell("with all passes");
    result.tensors = TRY(judge(job_));
    if (result.agrees()) return result;
    result.culprit = TRY(find_culprit());
    if (!options_.out.empty()) result.folder = TRY(write_reproducer());
    return result;
  }

 private:
  void tell(const std::string& what) const {
    if (progress_) progress_(what);
  }

  Status measure_references() {
    tell("in f64 without passes");
    Recipe exact = job_->recipe;
    set_pipeline(exact, {});
    set_precision(exact, "f64");
    exact.planner = "none";
    exact.memory_budget.clear();
    exact.recompute.clear();
    exact.in_place = exact.pieces = false;
    exact.offload.clear();
    exact_ = TRY(measure(TRY(prepare_measured(exact, stop_)), measure_, stop_));
    for (const Measured& m : exact_) {
      const std::size_t place = places_.size();
      places_[{m.kind, m.name}] = place;
      if (!std::isfinite(root_mean_square(m.tensor)))
        return Error{Errc::numeric, std::string(measured_kind_name(m.kind)) + " of " + escaped(m.name) +
                                        " is not finite, even in f64 without passes"};
    }
    tell("without passes");
    plain_.pipeline = all_.pipeline;
    std::erase_if(plain_.pipeline.passes, [](const PassConfig& p) { return !changes_precision(*p.def); });
    const auto plain = TRY(configured(*job_, plain_, stop_));
    const std::vector<Tensor> own = in_order(TRY(measure(plain, measure_, stop_)));
    for (std::size_t i = 0; i < exact_.size(); ++i) own_errors_.push_back(error_of(own[i], i));
    return {};
  }

  double error_of(const Tensor& got, std::size_t i) const {
    return got.defined() ? distance(got, exact_[i].tensor) : kInfinity;
  }

  // By the order of exact_. A tensor that the configuration does not give (a pass lost what a parameter does) is
  // empty: infinitely far from any.
  std::vector<Tensor> in_order(std::vector<Measured> measured) const {
    std::vector<Tensor> tensors(exact_.size());
    for (Measured& m : measured)
      if (const auto at = places_.find({m.kind, m.name}); at != places_.end())
        tensors[at->second] = std::move(m.tensor);
    return tensors;
  }

  // The own error once more, where it is small by luck.
  Status measure_nudged() {
    if (nudged_) return {};
    nudged_ = true;
    const auto plain = TRY(configured(*job_, plain_, stop_));
    MeasureOptions options = measure_;
    options.unit = unit_;
    for (int i = 1; i <= kNudged; ++i) {
      tell("without passes, parameters moved within their last place (" + std::to_string(i) + " of " +
           std::to_string(kNudged) + ")");
      options.nudge_seed = static_cast<std::uint64_t>(i);
      const std::vector<Tensor> own = in_order(TRY(measure(plain, options, stop_)));
      for (std::size_t t = 0; t < exact_.size(); ++t)
        own_errors_[t] = std::max(own_errors_[t], error_of(own[t], t));
    }
    return {};
  }

  // A loss is one number, right by luck in some step: the own error of losses is the largest of them.
  double own_error(std::size_t i) const {
    double largest = own_errors_[i];
    if (exact_[i].kind == MeasuredKind::loss)
      for (std::size_t t = 0; t < exact_.size(); ++t)
        if (exact_[t].kind == MeasuredKind::loss) largest = std::max(largest, own_errors_[t]);
    return largest;
  }

  Verified compared(std::size_t i, const Tensor& got) const {
    Verified v{exact_[i].kind, exact_[i].name};
    v.size = root_mean_square(exact_[i].tensor);
    v.own_error = own_error(i);
    v.error = error_of(got, i);
    v.bound = std::max(2 * v.own_error, unit_ * v.size);
    // What overflows without passes proves nothing of them.
    if (std::isinf(v.own_error)) v.bound = kInfinity;
    return v;
  }

  Result<std::vector<Verified>> judge(const std::shared_ptr<const Prepared>& job) {
    const std::vector<Tensor> got = in_order(TRY(measure(job, measure_, stop_)));
    const auto all = [&] {
      std::vector<Verified> verified;
      for (std::size_t i = 0; i < got.size(); ++i) verified.push_back(compared(i, got[i]));
      return verified;
    };
    std::vector<Verified> verified = all();
    if (std::all_of(verified.begin(), verified.end(), [](const Verified& v) { return v.agrees(); }))
      return verified;
    TRY(measure_nudged());
    return all();
  }

  // The tensor that strays the most in this configuration; empty: none does.
  Result<std::optional<Verified>> strays(const Configuration& configuration) {
    const auto verified = TRY(judge(TRY(configured(*job_, configuration, stop_))));
    std::optional<Verified> worst;
    for (const Verified& v : verified)
      if (!v.agrees() && (!worst || v.error * worst->bound > worst->error * v.bound)) worst = v;
    return worst;
  }

  Configuration keeping_values() const {
    Configuration c = all_;
    c.memory_budget_bytes = 0;
    c.recompute.clear();
    c.offload.clear();
    return c;
  }

  // With recompute alone, as far as it was named: a budget chooses both.
  Configuration without_offload() const {
    Configuration c = all_;
    c.memory_budget_bytes = 0;
    c.offload.clear();
    return c;
  }

  Configuration with_copies() const {
    Configuration c = all_;
    c.pieces = false;
    return c;
  }

  // The first `count` passes of the pipeline with what the precision needs, and the job's planner or none.
  Configuration first_passes(std::size_t count) const {
    Configuration c = keeping_values();
    c.pipeline.passes.clear();
    for (std::size_t i = 0; i < all_.pipeline.passes.size(); ++i)
      if (i < count || changes_precision(*all_.pipeline.passes[i].def))
        c.pipeline.passes.push_back(all_.pipeline.passes[i]);
    return c;
  }

  Result<Culprit> find_culprit() {
    Culprit culprit;
    shown_ = all_;
    if ((all_.runs_again() || all_.leaves()) && !TRY(strays(keeping_values()))) {
      const bool offload = all_.leaves() && !TRY(strays(without_offload()));
      return Culprit{offload ? "offload" : "recompute", "", TRY(strays(all_)).value_or(Verified{})};
    }
    if (all_.pieces && !TRY(strays(with_copies())))
      return Culprit{"pieces", "", TRY(strays(all_)).value_or(Verified{})};
    tell("with the memory planner alone");
    shown_ = first_passes(0);
    if (const auto worst = TRY(strays(shown_))) return Culprit{"planner " + all_.planner, "", *worst};
    // Without the first `low` passes it agrees not, with them it strays: low agrees, high strays.
    std::size_t low = 0, high = all_.pipeline.passes.size();
    shown_ = keeping_values();
    while (high - low > 1) {
      const std::size_t middle = (low + high) / 2;
      tell("up to pass " + std::string(all_.pipeline.passes[middle - 1].def->name));
      const Configuration tried = first_passes(middle);
      const auto worst = TRY(strays(tried));
      (worst ? high : low) = middle;
      if (worst) shown_ = tried;
    }
    const PassConfig& pass = all_.pipeline.passes[high - 1];
    culprit.pass = pass.def->name;
    tell(culprit.pass + " alone");
    Configuration alone = first_passes(0);
    if (!changes_precision(*pass.def)) alone.pipeline.passes.push_back(pass);
    if (TRY(strays(alone))) shown_ = alone;
    TRY(find_instance(pass, culprit));
    culprit.worst = TRY(strays(shown_)).value_or(Verified{});
    return culprit;
  }

  static PassConfig* pass_in(Configuration& configuration, const PassDef* def) {
    for (PassConfig& pass : configuration.pipeline.passes)
      if (pass.def == def) return &pass;
    return nullptr;
  }

  // Instances of the pass in the configuration that shows the difference, by their sites: with the first
  // `low` of them it agrees, with the first `high` it strays.
  Status find_instance(const PassConfig& pass, Culprit& culprit) {
    const std::vector<std::string> sites = TRY(matched_sites(pass));
    const auto with_first = [&](std::size_t count) {
      Configuration c = shown_;
      pass_in(c, pass.def)
          ->sites.except.insert(sites.begin() + static_cast<std::ptrdiff_t>(count), sites.end());
      return c;
    };
    if (sites.empty() || TRY(strays(with_first(0)))) return {};
    std::size_t low = 0, high = sites.size();
    while (high - low > 1) {
      const std::size_t middle = (low + high) / 2;
      tell(culprit.pass + ", " + std::to_string(middle) + " of " + std::to_string(sites.size()) +
           " instances");
      (TRY(strays(with_first(middle))) ? high : low) = middle;
    }
    culprit.site = sites[high - 1];
    Configuration only = shown_;
    pass_in(only, pass.def)->sites.only = {culprit.site};
    shown_ = TRY(strays(only)) ? only : with_first(high);
    return {};
  }

  Result<std::vector<std::string>> matched_sites(const PassConfig& pass) {
    const auto job = TRY(configured(*job_, shown_, stop_));
    std::vector<std::string> sites;
    for (const PassReport& report : job->compiled.reports) {
      if (report.name != pass.def->name) continue;
      for (const RewriteRecord& record : report.log)
        if (record.matched && std::find(sites.begin(), sites.end(), record.site) == sites.end())
          sites.push_back(record.site);
    }
    return sites;
  }

  // All batches that the steps read, as one array per input.
  Result<std::map<std::string, Tensor>> batches() const {
    const std::vector<InputSpec> specs = input_specs(job_->compiled.train.graph);
    const auto source = TRY(recipe_batches(job_->recipe, specs));
    const std::int64_t count = options_.steps * job_->options.train.accumulate;
    std::map<std::string, Tensor> arrays;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto batch = TRY(source->batch(i));
      for (const InputSpec& spec : specs) {
        const Tensor& one = batch.at(spec.name);
        Tensor& array = arrays[spec.name];
        if (i == 0) {
          Shape shape = one.shape();
          shape.insert(shape.begin(), count);
          array = Tensor(one.dtype(), shape);
        }
        std::copy_n(
            static_cast<const std::byte*>(one.data()), one.bytes(),
            static_cast<std::byte*>(array.mutable_data()) + static_cast<std::size_t>(i) * one.bytes());
      }
    }
    return arrays;
  }

  Result<std::string> write_reproducer() const {
    const fs::path folder = options_.out;
    std::error_code code;
    fs::create_directories(folder, code);
    if (code) return Error{Errc::io, "cannot make folder '" + escaped(options_.out) + "': " + code.message()};
    const std::string model = folder / "model.onnx", data = folder / "batches.npz";
    TRY(export_onnx(job_->recipe.model, {}, model));
    TRY(write_npz(data, TRY(batches())));
    Recipe recipe = job_->recipe;
    set_pipeline(recipe, shown_.pipeline);
    if (!shown_.runs_again()) {
      recipe.memory_budget.clear();
      recipe.recompute.clear();
    }
    if (!shown_.leaves()) recipe.offload.clear();
    recipe.model = model;
    recipe.model_hash = TRY(load_model(recipe)).content_hash;
    recipe.data = "npz:" + data;
    recipe.epochs = recipe.eval_every = recipe.eval_batches =
        0;  // those batches in that order, and no others
    recipe.shuffle = false;
    recipe.eval_data = recipe.early_stop = "";
    for (const auto& [file, name] :
         {std::pair(&recipe.load_params, "parameters"), std::pair(&recipe.load_optimizer, "optimizer")}) {
      if (file->empty()) continue;
      const fs::path own = folder / (name + fs::path(*file).extension().string());
      fs::copy_file(*file, own, fs::copy_options::overwrite_existing, code);
      if (code) return Error{Errc::io, "cannot make '" + escaped(own.string()) + "': " + code.message()};
      *file = own;
    }
    recipe.expect.reset();
    TRY(write_recipe(recipe, folder / "recipe.json"));
    return options_.out;
  }

  const std::shared_ptr<const Prepared>& job_;
  const VerifyOptions& options_;
  std::stop_token stop_;
  const std::function<void(const std::string&)>& progress_;
  const double unit_;
  const Configuration all_;  // the job's
  Configuration plain_;      // no passes, no reuse of memory
  Configuration shown_;      // the smallest found that shows the difference
  MeasureOptions measure_;
  std::vector<Measured> exact_;
  std::map<std::pair<MeasuredKind, std::string>, std::size_t> places_;  // in exact_
  std::vector<double> own_errors_;                                      // by tensor
  bool nudged_ = false;
};

}  // namespace

bool Verification::agrees() const {
  return std::all_of(tensors.begin(), tensors.end(), [](const Verified& v) { return v.agrees(); });
}

const Verified& Verification::worst(MeasuredKind kind) const {
  static const Verified none;
  const Verified* worst = &none;
  for (const Verified& v : tensors)
    if (v.kind == kind && (worst == &none || v.error * worst->bound > worst->error * v.bound)) worst = &v;
  return *worst;
}

Result<Verification> verify(const std::shared_ptr<const Prepared>& job, const VerifyOptions& options,
                            std::stop_token stop,
                            const std::function<void(const std::string& what)>& progress) {
  return Verifier(job, options, std::move(stop), progress).run();
}

std::string verify_line(const Recipe& recipe, const RunFlags& flags) {
  std::vector<std::string> words = command_words(recipe, flags);
  words[1] = "verify";
  const auto steps = std::find(words.begin(), words.end(), "--steps");
  if (steps != words.end()) words.erase(steps, steps + 2);
  return shell_line(words);
}

}  // namespace gradloom
