// gradloom_job_*: trainings behind C. What runs is TrainRun, as in `gradloom train`.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>

#include "app/caller_memory.h"
#include "app/embed/border.h"
#include "app/embed/caller_batches.h"
#include "app/embed/joined_ranks.h"
#include "app/parse_words.h"
#include "app/ranks.h"
#include "app/train_flags.h"
#include "engine/base/text.h"
#include "engine/train/weight_copies.h"

using namespace gradloom;

namespace {

struct JobValue {
  std::string name;
  Type type;
  bool gradient = false;
  ValueId id = kNone;
};
constexpr int kKinds = GRADLOOM_STATE + 1;

// A plan for other sizes or in another precision.
struct OtherPlan {
  std::shared_ptr<const JobPlan> plan;
  // Its 16-bit copies of weights (engine/train/weight_copies.h) are those of the job's own plan, and all of them.
  bool own_copies = true;
};

}  // namespace

struct gradloom_job {
  gradloom_callbacks callbacks{};
  Output out;
  std::stop_source stop;
  std::atomic<int> finishing{0};
  CommandContext context{out, stop.get_token(), finishing};
  TrainRequest request;  // TrainRun refers to its options
  std::unique_ptr<TrainRun> run;
  CallerBatches* batches = nullptr;  // the run's; null: the recipe has data
  std::map<int, OtherPlan> sizes;    // other than the job's own
  int next_sizes = 1;
  std::optional<int> current = 0;  // of these, 0: the job's own: the copies of weights in its plan are right
  std::string notes;
  std::vector<std::int64_t> extents;  // that were asked for last
  std::vector<JobValue> values[kKinds];
  std::map<std::string, const JobValue*> contents;  // that can be read and written
  Status steps;                                     // how they went so far
  mutable std::mutex mutex;
  mutable std::atomic<bool> broken{false};
};

namespace {

Result<TrainRequest> read_words(const std::vector<std::string>& words) {
  CLI::App app;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  TrainFlags flags;
  flags.declare(app);
  TRY(parse_words(app, words));
  return flags.resolve();
}

void listen(gradloom_job& job, const gradloom_callbacks* callbacks) {
  if (callbacks != nullptr) job.callbacks = *callbacks;
  job.out.set_json(job.callbacks.json != 0);
  job.out.set_listener(embed::listener(job.callbacks));
}

void describe(gradloom_job& job) {
  const TrainGraph& train = job.run->job().compiled().train;
  const Graph& graph = train.graph;
  const auto add = [&](int kind, ValueId id, bool gradient) {
    job.values[kind].push_back({graph.values[id].name, graph.type(id), gradient, id});
  };
  for (const InputSpec& input : job.run->job().inputs())
    add(GRADLOOM_INPUT, find_value(graph, input.name), false);
  add(GRADLOOM_OUTPUT, train.names.loss, false);
  for (const ValueId id : graph.parameters) {
    const auto& trained = train.trainable;
    add(GRADLOOM_PARAMETER, id,
        std::find(trained.begin(), trained.end(), graph.values[id].name) != trained.end());
  }
  std::set<std::string> statistics;  // states of the model
  for (const Value& v : job.run->prepared().model.graph.values)
    if (v.role == Role::state) statistics.insert(v.name);
  for (const Update& u : graph.updates)
    if (statistics.count(graph.values[u.state].name) != 0) add(GRADLOOM_STATISTIC, u.state, false);
  for (const TrainState& state : train.states) add(GRADLOOM_STATE, find_value(graph, state.value), false);
  for (const int kind : {GRADLOOM_PARAMETER, GRADLOOM_STATISTIC, GRADLOOM_STATE})
    for (const JobValue& v : job.values[kind]) job.contents[v.name] = &v;
}

// Callers read and write whole parameters: with pass zero every rank keeps all of each in f32.
Status keep_whole_parameters(Recipe& recipe) {
  for (RecipePass& pass : recipe.passes) {
    if (pass.name != "zero") continue;
    const auto given = std::find_if(pass.options.begin(), pass.options.end(),
                                    [](const auto& option) { return option.first == "masters"; });
    if (given == pass.options.end())
      pass.options.emplace_back("masters", "all");
    else if (given->second != "all")
      return Error{Errc::usage,
                   "zero{masters=apart}: callers read whole parameters, of which ranks have parts"};
  }
  return {};
}

Result<CallerMemory> memory_of(int count, const gradloom_memory* memories) {
  CallerMemory memory;
  if (count < 0) return Error{Errc::usage, "memory_count is " + std::to_string(count)};
  if (count > 0) TRY(embed::given(memories, "memories"));
  for (int i = 0; i < count; ++i) {
    TRY(embed::given(memories[i].name, ("name of memory " + std::to_string(i)).c_str()));
    memory.places.push_back({memories[i].name, static_cast<std::byte*>(memories[i].data), memories[i].bytes});
  }
  return memory;
}

Status open_job(const std::vector<std::string>& words, const gradloom_callbacks* callbacks,
                std::optional<CallerMemory> memory, gradloom_job** opened) {
  auto job = std::make_unique<gradloom_job>();
  listen(*job, callbacks);
  job->request = TRY(read_words(words));
  TRY(embed::has_not_left());
  if (const auto place = embed::joined_place()) become_rank(*place, job->request, job->context);
  Recipe& recipe = job->request.recipe;
  for (const RecipePass& pass : recipe.passes)
    if (recipe.ranks > 1 && (pass.name == "tensor-parallel" || pass.name == "gather-early"))
      return Error{Errc::usage, pass.name + ": callers read whole parameters, of which ranks have parts"};
  TRY(keep_whole_parameters(recipe));
  std::unique_ptr<CallerBatches> batches;
  if (recipe.data == kCallerData) {
    if (recipe.epochs > 0 || recipe.shuffle)
      return Error{Errc::usage, "data caller: the caller says what comes when, not --epochs or --shuffle"};
    batches = std::make_unique<CallerBatches>();
    job->batches = batches.get();
  }
  if (memory) memory->has_contents = !job->request.from && recipe.load_params.empty();
  job->run = std::make_unique<TrainRun>(recipe, job->request.options, job->context,
                                        std::move(job->request.from), std::move(batches), std::move(memory));
  TRY(job->run->begin());
  for (const std::string& note : job->run->prepared().model.notes) job->notes += note + "\n";
  describe(*job);
  *opened = job.release();
  return {};
}

Status open_heard(const std::vector<std::string>& words, const gradloom_callbacks* callbacks,
                  std::optional<CallerMemory> memory, gradloom_job** job) {
  if (callbacks == nullptr) return open_job(words, nullptr, std::move(memory), job);
  const gradloom_callbacks own = TRY(embed::sized(callbacks, "callbacks"));
  return open_job(words, &own, std::move(memory), job);
}

// One step more. REQUIRES the lock.
Status make_step(gradloom_job& job, double* loss) {
  if (!job.steps.ok()) return job.steps;
  if (!job.run->left())
    return Error{Errc::usage,
                 "all " + std::to_string(job.run->last_step()) + " steps are made (--steps N makes more)"};
  const Result<bool> made = job.run->advance(false);
  if (!made) return job.steps = embed::as_end_of_rank(made.error());
  if (!*made)
    return Error{Errc::usage, "held-out data have ended the training after step " +
                                  std::to_string(job.run->last_step()) + " (--early-stop)"};
  if (loss != nullptr) *loss = job.run->history().losses.back();
  return {};
}

Status run_all(gradloom_job& job) {
  TRY(job.steps);
  const std::int64_t steps = job.run->job().recipe().steps;
  while (job.run->left()) {
    const Result<bool> made = job.run->advance(true);
    if (!made) return job.steps = embed::as_end_of_rank(made.error());
    if (!*made) return {};
    const auto progress = job.callbacks.progress;
    if (progress != nullptr &&
        progress(job.callbacks.user, job.run->last_step(), steps, job.run->history().losses.back()) != 0)
      job.stop.request_stop();
  }
  return {};
}

// The job's recipe with another model, other dims or another precision.
Result<Recipe> resized(const gradloom_job& job, const std::vector<std::string>& words) {
  Recipe recipe = job.run->prepared().recipe;
  CLI::App app;
  std::string model, precision;
  std::vector<std::string> dims;
  app.add_option("MODEL", model);
  app.add_option("--dim", dims)->allow_extra_args(false);
  app.add_option("--precision", precision);
  TRY(parse_words(app, words));
  if (!model.empty()) {
    recipe.model = model;
    recipe.dims.clear();
  }
  for (const std::string& dim : dims) TRY(RecipeFlags::override_with(recipe, "dim=" + dim));
  if (!precision.empty()) TRY(RecipeFlags::override_with(recipe, "precision=" + precision));
  recipe.model_hash.clear();
  recipe.load_params.clear();  // contents are the job's
  recipe.load_optimizer.clear();
  return recipe;
}

std::map<std::string_view, Type> copies_of(const Prepared& prepared) {
  const Graph& graph = prepared.compiled.train.graph;
  std::map<std::string_view, Type> copies;
  for (const auto& [copy, parameter] : weight_copies(graph))
    copies[graph.values[copy].name] = graph.type(copy);
  return copies;
}

Status add_sizes(gradloom_job& job, const std::vector<std::string>& words, int* sizes) {
  TRY(job.steps);
  const Recipe recipe = TRY(resized(job, words));
  std::shared_ptr<const Prepared> prepared = TRY(prepare(recipe, job.context.stop));
  const bool own_copies = copies_of(*prepared) == copies_of(job.run->prepared());
  job.sizes[job.next_sizes] = {TRY(job.run->job().plan_for(std::move(prepared))), own_copies};
  *sizes = job.next_sizes++;
  return {};
}

Result<const OtherPlan*> plan_of(const gradloom_job& job, int sizes) {
  const auto found = job.sizes.find(sizes);
  if (found == job.sizes.end())
    return Error{Errc::usage, "there are no sizes " + std::to_string(sizes) + " (gradloom_job_sizes)"};
  return &found->second;
}

// Whether the copies of weights in these sizes' plan are the job's own.
bool has_own_copies(const gradloom_job& job, std::optional<int> sizes) {
  return sizes && (*sizes == 0 || job.sizes.at(*sizes).own_copies);
}

// Before a step of these sizes: copies of weights that steps with other copies passed by are made anew.
Status make_current(gradloom_job& job, int sizes) {
  if (job.current == sizes || (has_own_copies(job, job.current) && has_own_copies(job, sizes))) {
    job.current = sizes;
    return {};
  }
  job.current.reset();
  const JobPlan* const other = sizes == 0 ? nullptr : job.sizes.at(sizes).plan.get();
  Executor& executor = other != nullptr ? *other->executor : job.run->job().executor();
  const Prepared& prepared = other != nullptr ? *other->prepared : job.run->prepared();
  for (const auto& [copy, parameter] : weight_copies(prepared.compiled.train.graph))
    TRY(executor.write(parameter, TRY(executor.read(parameter))));
  job.current = sizes;
  return {};
}

Status step_on(gradloom_job& job, int sizes, int count, const void* const* inputs, double* loss) {
  if (job.batches == nullptr)
    return Error{Errc::usage, "the job has data of its own (--data caller takes the caller's)"};
  if (count > 0) TRY(embed::given(inputs, "inputs"));
  Job& of = job.run->job();
  const std::optional<RankPlace> place = embed::joined_place();
  const std::shared_ptr<const JobPlan> plan = sizes == 0 ? nullptr : TRY(plan_of(job, sizes))->plan;
  TRY(job.batches->bring(of.first_batch(job.run->last_step() + 1) + (place ? place->rank : 0),
                         of.recipe().ranks, of.options().train.accumulate, plan ? plan->inputs : of.inputs(),
                         std::vector<const void*>(inputs, inputs + std::max(count, 0))));
  of.use(plan);
  TRY(make_current(job, sizes));
  return make_step(job, loss);
}

Result<const JobValue*> value_called(const gradloom_job& job, const char* name, std::size_t bytes) {
  TRY(embed::given(name, "name"));
  const auto at = job.contents.find(name);
  if (at == job.contents.end()) {
    std::vector<std::string> known;
    for (const auto& [known_name, value] : job.contents) known.push_back(known_name);
    return Error{Errc::usage, unknown_name("parameter, statistic or state", name, known)};
  }
  if (byte_size(at->second->type) != bytes)
    return Error{Errc::usage, "'" + escaped(name) + "' has " + std::to_string(byte_size(at->second->type)) +
                                  " bytes, not " + std::to_string(bytes)};
  return at->second;
}

// A call on a handle, one at a time.
template <class Body>
int on(const gradloom_job* job, const Body& body) noexcept {
  if (job == nullptr) return embed::report(Errc::usage, "job is null");
  return embed::guarded(&job->broken, [&]() -> Status {
    const std::lock_guard lock(job->mutex);
    return body();
  });
}

Status check_kind(int kind) {
  if (kind >= 0 && kind < kKinds) return {};
  return Error{Errc::usage, "jobs have no values of kind " + std::to_string(kind)};
}

}  // namespace

int gradloom_job_open(int word_count, const char* const* words, const gradloom_callbacks* callbacks,
                      gradloom_job** job) {
  return embed::guarded(nullptr, [&]() -> Status {
    TRY(embed::given(job, "job"));
    const std::vector<std::string> all = TRY(embed::words_of(word_count, words));
    return open_heard(all, callbacks, std::nullopt, job);
  });
}

int gradloom_job_open_on(int word_count, const char* const* words, const gradloom_callbacks* callbacks,
                         int memory_count, gradloom_memory* memories, gradloom_job** job) {
  return embed::guarded(nullptr, [&]() -> Status {
    TRY(embed::given(job, "job"));
    CallerMemory memory = TRY(memory_of(memory_count, memories));
    TRY(open_heard(TRY(embed::words_of(word_count, words)), callbacks, std::move(memory), job));
    const Executor& executor = (*job)->run->job().executor();
    for (int i = 0; i < memory_count; ++i) {
      const auto found = (*job)->contents.find(memories[i].name);
      memories[i].used = found != (*job)->contents.end() && executor.holds(found->second->id);
    }
    return {};
  });
}

int gradloom_job_close(gradloom_job* job) {
  if (job == nullptr) return GRADLOOM_OK;
  const std::unique_ptr<gradloom_job> owned(job);
  return embed::guarded(&job->broken, [&]() -> Status { return job->run->finish(job->steps); });
}

int gradloom_job_step(gradloom_job* job, double* loss) {
  return on(job, [&]() -> Status {
    if (job->batches != nullptr)
      return Error{Errc::usage, "data caller: a step needs its batches (gradloom_job_step_on)"};
    return make_step(*job, loss);
  });
}

int gradloom_job_run(gradloom_job* job) {
  return on(job, [&]() -> Status {
    if (job->batches != nullptr)
      return Error{Errc::usage, "data caller: a step needs its batches (gradloom_job_step_on)"};
    return run_all(*job);
  });
}

int gradloom_job_step_on(gradloom_job* job, int count, const void* const* inputs, double* loss) {
  return on(job, [&] { return step_on(*job, 0, count, inputs, loss); });
}

int gradloom_job_step_sized(gradloom_job* job, int sizes, int count, const void* const* inputs,
                            double* loss) {
  return on(job, [&] { return step_on(*job, sizes, count, inputs, loss); });
}

int gradloom_job_sizes(gradloom_job* job, int word_count, const char* const* words, int* sizes) {
  return on(job, [&]() -> Status {
    TRY(embed::given(sizes, "sizes"));
    return add_sizes(*job, TRY(embed::words_of(word_count, words)), sizes);
  });
}

int gradloom_job_extents(gradloom_job* job, int sizes, const int64_t** extents, size_t* count) {
  return on(job, [&]() -> Status {
    TRY(embed::given(extents, "extents"));
    TRY(embed::given(count, "count"));
    const Prepared& of = sizes == 0 ? job->run->prepared() : *TRY(plan_of(*job, sizes))->plan->prepared;
    job->extents = embed::extents_of(of.model.graph);
    *extents = job->extents.data();
    *count = job->extents.size();
    return {};
  });
}

int gradloom_job_forget_sizes(gradloom_job* job, int sizes) {
  return on(job, [&]() -> Status {
    TRY(plan_of(*job, sizes));
    job->run->job().use(nullptr);
    if (job->current == sizes)
      job->current = has_own_copies(*job, sizes) ? std::optional<int>(0) : std::nullopt;
    job->sizes.erase(sizes);
    return {};
  });
}

int gradloom_job_steps(const gradloom_job* job, int64_t* made, int64_t* all) {
  return on(job, [&]() -> Status {
    if (made != nullptr) *made = job->run->last_step();
    if (all != nullptr) *all = job->run->job().recipe().steps;
    return {};
  });
}

int gradloom_job_set_learning_rate(gradloom_job* job, double rate) {
  return on(job, [&]() -> Status {
    if (!(rate >= 0 && rate <= 1e30)) return Error{Errc::usage, "no learning rate: " + std::to_string(rate)};
    job->run->job().set_learning_rate(rate);
    return {};
  });
}

int gradloom_job_set_option(gradloom_job* job, int group, const char* option, double value) {
  return on(job, [&]() -> Status {
    TRY(embed::given(option, "option"));
    return job->run->job().set_option(group, option, value);
  });
}

int gradloom_job_notes(const gradloom_job* job, const char** notes) {
  return on(job, [&]() -> Status {
    TRY(embed::given(notes, "notes"));
    *notes = job->notes.c_str();
    return {};
  });
}

int gradloom_job_count(const gradloom_job* job, int kind, int* count) {
  return on(job, [&]() -> Status {
    TRY(check_kind(kind));
    TRY(embed::given(count, "count"));
    *count = static_cast<int>(job->values[kind].size());
    return {};
  });
}

int gradloom_job_value(const gradloom_job* job, int kind, int index, gradloom_value* value) {
  return on(job, [&]() -> Status {
    TRY(check_kind(kind));
    TRY(embed::given(value, "value"));
    TRY(embed::check_index(index, job->values[kind].size()));
    const JobValue& v = job->values[kind][static_cast<std::size_t>(index)];
    *value = embed::described(v.name, v.type, v.gradient, true);
    return {};
  });
}

int gradloom_job_read(const gradloom_job* job, const char* name, void* to, size_t bytes) {
  return on(job, [&]() -> Status {
    const JobValue& value = *TRY(value_called(*job, name, bytes));
    if (bytes == 0) return {};
    TRY(embed::given(to, "to"));
    if (!job->run->job().executor().holds(value.id))
      return Error{Errc::usage, "'" + escaped(name) + "' is kept by another rank (pass zero)"};
    const Tensor contents = TRY(job->run->job().state_view(value.id));
    std::memcpy(to, contents.data(), bytes);
    return {};
  });
}

int gradloom_job_write(gradloom_job* job, const char* name, const void* from, size_t bytes) {
  return on(job, [&]() -> Status {
    const JobValue& value = *TRY(value_called(*job, name, bytes));
    if (bytes == 0) return {};
    TRY(embed::given(from, "from"));
    if (!job->run->job().executor().holds(value.id)) return {};
    auto* const at = static_cast<std::byte*>(const_cast<void*>(from));  // which is only read
    if (!has_own_copies(*job, job->current)) job->current.reset();      // whose copies are not written
    return job->run->job().executor().write(value.id, Tensor::over(value.type, {at, [](std::byte*) {}}));
  });
}

int gradloom_job_checkpoint(gradloom_job* job) {
  return on(job, [&]() -> Status {
    TRY(job->steps);
    return job->run->write_checkpoint();
  });
}
