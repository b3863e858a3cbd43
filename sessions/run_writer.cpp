// RunWriter: rows of a run in short transactions, each of which also renews the run's digest.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/collectives/exchange_rows.h"
#include "profiler/import/imported_trace.h"
#include "sessions/find_model.h"
#include "sessions/store.h"
#include "sessions/store_impl.h"

namespace gradloom {
namespace {

constexpr std::int64_t kCommitIntervalNs = 500'000'000;
constexpr std::size_t kCommitSteps = 64;

using json = nlohmann::json;

std::string json_text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

const char* pass_phase_name(PassPhase phase) {
  switch (phase) {
    case PassPhase::pre_gradient: return "pre_gradient";
    case PassPhase::post_gradient: return "post_gradient";
    case PassPhase::both: return "both";
  }
  return "both";
}

const char* place_name(Place place) {
  switch (place) {
    case Place::none: return "none";
    case Place::arena: return "arena";
    case Place::state: return "state";
    case Place::input: return "input";
    case Place::constant: return "constant";
    case Place::result: return "result";
    case Place::host: return "host";
  }
  return "none";
}

// The module path of an ONNX node, within the module that is named before it.
std::string prefixed_scope(const std::string& prefix, const std::string& scope) {
  if (prefix.empty()) return scope;
  return scope.empty() ? prefix.substr(0, prefix.size() - 1) : prefix + scope;
}

// A name within that module. Exporters begin most with a slash.
std::string prefixed(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + name.substr(name.starts_with('/') ? 1 : 0);
}

const char* nonfinite_text(double value) { return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"; }

}  // namespace

struct RunWriter::Impl {
  Impl(Store::Impl& s, std::int64_t id) : store(s), run(id) {}
  Store::Impl& store;
  std::int64_t run;
  std::map<std::string, RowHash> hashes;  // by table: of all rows written so far
  std::vector<StepRow> steps;             // not yet committed
  std::vector<EvaluationRow> evaluations;
  std::vector<std::pair<std::int64_t, KernelSample>> samples;
  std::vector<TraceActivity> activities;
  std::vector<std::vector<HostSpan>> host;  // by step
  std::vector<std::pair<std::int64_t, RankStep>> rank_steps;
  // Numbers that the next plan begins with.
  struct Numbers {
    std::int64_t source = 0, node = 0, plan_step = 0, buffer = 0, pass = 0;
  } next;
  std::int64_t last_commit_ns = monotonic_ns();
  bool finished = false;

  // Inserts a row and adds it to the table's hash. `cells` must start with the run.
  Status insert(const char* table, Statement& statement, std::initializer_list<Cell> cells) {
    TRY(statement.run(cells));
    RowHash& hash = hashes[table];
    for (const Cell& cell : cells) hash.add(cell);
    return {};
  }
  Result<Statement> inserter(const char* table, int columns) {
    std::string marks = "?";
    for (int i = 1; i < columns; ++i) marks += ",?";
    return store.database.prepare(fmt::format("INSERT INTO {} VALUES ({})", table, marks));
  }
  Status write_digest() {
    std::string digest = TRY(store.hash_run_row(run));
    for (const char* table : kRunTables)
      digest += " " + (table == kAnnotation ? TRY(store.hash_table(table, run, Store::Impl::Access::index))
                                            : hashes[table].hex());
    Statement update = TRY(store.database.prepare("UPDATE run SET digest = ? WHERE id = ?"));
    return update.run({std::string_view(digest), run});
  }
  // Runs `body` and renews the digest in one transaction; a failure leaves file and hashes as they were.
  template <class Body>
  Status transact(Body body) {
    const std::map<std::string, RowHash> before = hashes;
    const auto attempt = [&]() -> Status {
      TRY(store.file_in_place());
      Transaction transaction = TRY(Transaction::begin(store.database, true));
      TRY(body());
      TRY(write_digest());
      return transaction.commit();
    };
    const Status status = attempt();
    if (!status.ok()) {
      hashes = before;
      return store.error(status.error());
    }
    last_commit_ns = monotonic_ns();
    return {};
  }
  Status insert_environment(const std::map<std::string, std::string>& environment) {
    Statement row = TRY(inserter("environment", 3));
    for (const auto& [name, value] : environment) {
      TRY(insert("environment", row, {run, std::string_view(name), std::string_view(value)}));
    }
    return {};
  }
  // Of a rank but the first, whose environment is the run's.
  Status insert_rank_environment(std::int64_t rank, const std::map<std::string, std::string>& environment) {
    if (rank == 0) return {};
    Statement row = TRY(inserter("rank_environment", 4));
    for (const auto& [name, value] : environment)
      TRY(insert("rank_environment", row, {run, rank, std::string_view(name), std::string_view(value)}));
    return {};
  }
  Status insert_implementations(const std::vector<Implementations>& implementations);
  Status insert_steps();
  Status insert_host_spans();
  Status insert_rank_steps();
  Status insert_graph(const Graph& graph, const std::string& prefix);
  Status insert_plan(const Graph& graph, const Plan& plan, const std::string& prefix);
  Status insert_passes(const std::vector<PassReport>& reports);
  Status insert_kernel(const ImportedKernel& kernel, Statement& node, Statement& join, Statement& step);
};

Result<std::unique_ptr<RunWriter>> Store::begin_run(const RunStart& start) {
  CHECK(impl_->mode == StoreMode::write, "the store was opened for reading");
  auto writer = std::make_unique<RunWriter::Impl>(*impl_, 0);
  const std::string process = this_process(), started = utc_timestamp();
  const auto text = [](const std::string& s) { return Cell(std::string_view(s)); };
  const Status status = writer->transact([&]() -> Status {
    TRY(impl_->database.require_free_id("run"));
    Statement row = TRY(impl_->database.prepare(
        "INSERT INTO run (name, status, message, started_utc, process, command, model, model_hash, device, "
        "\"precision\", optimizer,"
        " loss, data, passes, planner, seed, planned_steps, graph_hash, plan_hash, recipe, "
        "measured_peak_bytes, digest)"
        " VALUES (?, 'running', '', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, '')"));
    TRY(row.run({text(start.name), text(started), text(process), text(start.command), text(start.model),
                 text(start.model_hash), text(start.device), text(start.precision), text(start.optimizer),
                 text(start.loss), text(start.data), text(start.passes), text(start.planner),
                 static_cast<std::int64_t>(start.seed), start.planned_steps, text(start.graph_hash),
                 text(start.plan_hash), text(start.recipe_json)}));
    writer->run = impl_->database.last_id();
    std::map<std::string, std::string> environment = start.environment;
    if (const std::string there = model_from_session(start.model, impl_->path); !there.empty())
      environment.emplace(kModelFromSession, there);
    return writer->insert_environment(environment);
  });
  if (!status.ok()) return status.error();
  return std::unique_ptr<RunWriter>(new RunWriter(std::move(writer)));
}

RunWriter::RunWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RunWriter::~RunWriter() {
  if (impl_ && !impl_->finished) (void)flush();  // best effort: whoever wants to know calls flush or finish
}

std::int64_t RunWriter::id() const { return impl_->run; }

Status RunWriter::Impl::insert_graph(const Graph& graph, const std::string& prefix) {
  Statement source = TRY(inserter("source_node", 6)), node_row = TRY(inserter("graph_node", 9)),
            join = TRY(inserter("node_source", 3));
  for (std::size_t i = 0; i < graph.sources.size(); ++i) {
    const SourceNode& s = graph.sources[i];
    const std::string name = prefixed(prefix, s.name), scope = prefixed_scope(prefix, s.scope);
    TRY(insert("source_node", source,
               {run, next.source + static_cast<std::int64_t>(i), std::string_view(name),
                std::string_view(s.op_type), std::string_view(s.domain), std::string_view(scope)}));
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!node.alive()) continue;
    const std::int64_t id = next.node + static_cast<std::int64_t>(i);
    const std::string name = prefixed(prefix, node.name),
                      scope = prefixed_scope(prefix, node.origin.sources.empty()
                                                         ? ""
                                                         : graph.sources[node.origin.sources[0]].scope);
    const std::string attributes = to_string(node.attrs), types = result_types(graph, node),
                      passes = passes_text(graph, node);
    TRY(insert("graph_node", node_row,
               {run, id, std::string_view(name), std::string_view(node.op->name),
                std::string_view(phase_name(node.origin.phase)), std::string_view(scope),
                std::string_view(passes), std::string_view(attributes), std::string_view(types)}));
    for (const std::uint32_t s : node.origin.sources)
      TRY(insert("node_source", join, {run, id, next.source + static_cast<std::int64_t>(s)}));
  }
  return {};
}

Status RunWriter::Impl::insert_plan(const Graph& graph, const Plan& plan, const std::string& prefix) {
  Statement row = TRY(inserter("plan", 11)), step_row = TRY(inserter("plan_step", 11)),
            buffer_row = TRY(inserter("buffer", 8)), exchange_row = TRY(inserter("exchange_step", 2));
  TRY(insert(
      "plan", row,
      {run, std::string_view(plan.planner), std::string_view(plan.hash), plan.peak_bytes(), plan.arena_bytes,
       plan.state_bytes, plan.input_bytes, plan.constant_bytes, plan.lower_bound_bytes,
       next.plan_step + static_cast<std::int64_t>(plan.peak_step), plan.plan_ms}));
  const std::vector<std::int64_t> live = live_bytes(plan);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& s = plan.steps[i];
    TRY(insert("plan_step", step_row,
               {run, next.plan_step + static_cast<std::int64_t>(i),
                next.node + static_cast<std::int64_t>(s.node), std::string_view(s.kernel),
                static_cast<std::int64_t>(s.stream), static_cast<std::int64_t>(s.micro), s.workspace_bytes,
                i < live.size() ? live[i] : std::int64_t{0}, s.flops, s.bytes_read, s.bytes_written}));
    if (stands_still(*graph.nodes[s.node].op))
      TRY(insert("exchange_step", exchange_row, {run, next.plan_step + static_cast<std::int64_t>(i)}));
  }
  std::vector<ValueId> wholes_first;  // a buffer has the name of the first value in it
  for (const bool parts : {false, true})
    for (ValueId v = 0; v < plan.buffer_of.size() && v < graph.values.size(); ++v)
      if ((plan.pieces.count(v) != 0) == parts) wholes_first.push_back(v);
  for (const ValueId v : wholes_first) {
    const std::int32_t b = plan.buffer_of[v];
    if (b < 0) continue;
    const Buffer& buffer = plan.buffers[static_cast<std::size_t>(b)];
    const std::string name = prefixed(prefix, graph.values[v].name);
    TRY(insert("buffer", buffer_row,
               {run, next.buffer + b, std::string_view(name), std::string_view(place_name(buffer.place)),
                buffer.offset, buffer.bytes, next.plan_step + buffer.first_step,
                next.plan_step + buffer.last_step}));
  }
  return {};
}

Status RunWriter::Impl::insert_passes(const std::vector<PassReport>& reports) {
  Statement row = TRY(inserter("pass", 9)), match = TRY(inserter("pass_match", 9)),
            instance = TRY(inserter("pass_instance", 4));
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const PassReport& report = reports[i];
    const std::int64_t id = next.pass + static_cast<std::int64_t>(i);
    TRY(insert("pass", row,
               {run, id, std::string_view(report.name), std::string_view(pass_phase_name(report.at)),
                static_cast<std::int64_t>(report.matched), static_cast<std::int64_t>(report.rejected),
                static_cast<std::int64_t>(report.nodes_before), static_cast<std::int64_t>(report.nodes_after),
                report.ms}));
    std::int64_t number = 0;
    for (const RewriteRecord& record : report.log) {
      if (!record.fingerprint.empty())
        TRY(insert("pass_instance", instance, {run, id, number, std::string_view(record.fingerprint)}));
      ++number;
      std::vector<std::int64_t> numbered;
      for (const std::uint32_t source : record.sources) numbered.push_back(next.source + source);
      const std::string removed = json_text(record.removed), added = json_text(record.added),
                        sources = json_text(numbered);
      TRY(insert("pass_match", match,
                 {run, id, std::string_view(record.rule), std::string_view(record.site),
                  static_cast<std::int64_t>(record.matched), std::string_view(record.why),
                  std::string_view(removed), std::string_view(added), std::string_view(sources)}));
    }
  }
  return {};
}

Status RunWriter::write_plan(const Graph& graph, const Plan& plan, const std::vector<PassReport>& reports,
                             const std::string& module) {
  const std::string prefix = module.empty() ? "" : module + "/";
  TRY(impl_->transact([&]() -> Status {
    TRY(impl_->insert_graph(graph, prefix));
    TRY(impl_->insert_plan(graph, plan, prefix));
    return impl_->insert_passes(reports);
  }));
  Impl::Numbers& next = impl_->next;
  next.source += static_cast<std::int64_t>(graph.sources.size());
  next.node += static_cast<std::int64_t>(graph.nodes.size());
  next.plan_step += static_cast<std::int64_t>(plan.steps.size());
  next.buffer += static_cast<std::int64_t>(plan.buffers.size());
  next.pass += static_cast<std::int64_t>(reports.size());
  return {};
}

Status RunWriter::Impl::insert_implementations(const std::vector<Implementations>& implementations) {
  Statement row = TRY(inserter("implementation", 7));
  for (std::size_t step = 0; step < implementations.size(); ++step) {
    std::int64_t number = 0;
    for (const Implementation& i : implementations[step])
      TRY(insert("implementation", row,
                 {run, static_cast<std::int64_t>(step), number++, std::string_view(i.kernel),
                  std::string_view(i.library), std::string_view(i.detail), std::int64_t{i.failed}}));
  }
  return {};
}

// A node of its own for each kernel.
Status RunWriter::Impl::insert_kernel(const ImportedKernel& kernel, Statement& node, Statement& join,
                                      Statement& step) {
  const KernelInfo& k = kernel.info;
  const std::int64_t id = k.plan_step;
  const std::string attributes = kernel.inputs.empty() ? "" : "inputs=" + kernel.inputs;
  TRY(insert("graph_node", node,
             {run, id, std::string_view(k.node), std::string_view(k.op), std::string_view(k.phase),
              std::string_view(k.scope), std::string_view(k.passes), std::string_view(attributes),
              std::string_view(k.types)}));
  for (const std::uint32_t source : k.sources)
    TRY(insert("node_source", join, {run, id, static_cast<std::int64_t>(source)}));
  return insert("plan_step", step,
                {run, id, id, std::string_view(k.kernel), static_cast<std::int64_t>(k.stream),
                 std::int64_t{0}, std::int64_t{0}, std::int64_t{0}, k.flops, k.bytes_read, k.bytes_written});
}

Status RunWriter::write_kernels(const std::vector<SourceNode>& operators,
                                const std::vector<ImportedKernel>& kernels) {
  Impl& impl = *impl_;
  CHECK(impl.next.plan_step == 0, "a run has a plan or kernels of another profiler");
  TRY(impl.transact([&]() -> Status {
    Statement source = TRY(impl.inserter("source_node", 6)), node = TRY(impl.inserter("graph_node", 9)),
              join = TRY(impl.inserter("node_source", 3)), step = TRY(impl.inserter("plan_step", 11)),
              exchange = TRY(impl.inserter("exchange_step", 2));
    std::int64_t number = 0;
    for (const SourceNode& s : operators)
      TRY(impl.insert("source_node", source,
                      {impl.run, number++, std::string_view(s.name), std::string_view(s.op_type),
                       std::string_view(s.domain), std::string_view(s.scope)}));
    for (const ImportedKernel& kernel : kernels) {
      TRY(impl.insert_kernel(kernel, node, join, step));
      if (kernel.exchange)
        TRY(impl.insert("exchange_step", exchange, {impl.run, std::int64_t{kernel.info.plan_step}}));
    }
    return {};
  }));
  impl.next.plan_step = static_cast<std::int64_t>(kernels.size());
  return {};
}

Status RunWriter::Impl::insert_host_spans() {
  if (host.empty()) return {};
  Statement row = TRY(inserter("host_span", 8));
  for (const std::vector<HostSpan>& step : host) {
    std::int64_t number = 0;
    for (const HostSpan& s : step) {
      TRY(insert("host_span", row,
                 {run, s.step, number++, s.parent < 0 ? Cell(nullptr) : Cell(std::int64_t{s.parent}),
                  std::string_view(s.kind), std::string_view(s.name), s.start_ns, s.duration_ns}));
    }
  }
  return {};
}

Status RunWriter::Impl::insert_rank_steps() {
  if (rank_steps.empty()) return {};
  Statement sample_row = TRY(inserter("rank_sample", 7)), exchange_row = TRY(inserter("exchange", 9));
  for (const auto& [step, times] : rank_steps) {
    for (const auto& [rank, s] : times.samples)
      TRY(insert(
          "rank_sample", sample_row,
          {run, rank, step, std::int64_t{s.micro}, std::int64_t{s.plan_step}, s.start_ns, s.duration_ns}));
    for (const ExchangeRow& e : times.exchanges)
      TRY(insert("exchange", exchange_row,
                 {run, e.rank, step, std::int64_t{e.micro}, std::int64_t{e.plan_step}, e.start_ns,
                  e.duration_ns, e.wait_ns, e.sent_bytes}));
  }
  return {};
}

Status RunWriter::Impl::insert_steps() {
  Statement step_row = TRY(inserter("loss", 8)), scale_row = TRY(inserter("loss_scale", 4)),
            sample_row = TRY(inserter("kernel_sample", 6));
  for (const StepRow& row : steps) {
    const bool finite = std::isfinite(row.loss);
    TRY(insert(
        "loss", step_row,
        {run, row.step, finite ? Cell(row.loss) : Cell(nullptr),
         finite ? Cell(nullptr) : Cell(std::string_view(nonfinite_text(row.loss))), row.step_ns, row.lr,
         row.grad_norm >= 0 ? Cell(row.grad_norm) : Cell(nullptr), static_cast<std::int64_t>(row.timed)}));
    if (row.loss_scale > 0)
      TRY(insert("loss_scale", scale_row, {run, row.step, row.loss_scale, row.skipped}));
  }
  Statement thread_row = TRY(inserter("thread_sample", 8));
  for (const auto& [step, sample] : samples) {
    const std::int64_t micro = sample.micro, plan_step = sample.plan_step;
    TRY(insert("kernel_sample", sample_row,
               {run, step, micro, plan_step, sample.start_ns, sample.duration_ns}));
    if (sample.threads.size() < 2) continue;
    for (const kernels::ThreadTime& t : sample.threads)
      TRY(insert("thread_sample", thread_row,
                 {run, step, micro, plan_step, std::int64_t{t.thread}, t.start_ns, t.end_ns - t.start_ns,
                  t.busy_ns}));
  }
  Statement evaluation_row = TRY(inserter("evaluation", 6));
  for (const EvaluationRow& row : evaluations) {
    const bool finite = std::isfinite(row.loss);
    TRY(insert("evaluation", evaluation_row,
               {run, row.step, finite ? Cell(row.loss) : Cell(nullptr),
                finite ? Cell(nullptr) : Cell(std::string_view(nonfinite_text(row.loss))), row.batches,
                row.eval_ns}));
  }
  Statement activity_row = TRY(inserter("activity", 10));
  const auto known = [](std::int32_t id) {
    return id >= 0 ? Cell(static_cast<std::int64_t>(id)) : Cell(nullptr);
  };
  for (const TraceActivity& a : activities) {
    TRY(insert(
        "activity", activity_row,
        {run, a.step, static_cast<std::int64_t>(a.micro), std::string_view(activity_name(a.kind)),
         known(a.stream), known(a.plan_step), a.start_ns, a.duration_ns, a.bytes, std::string_view(a.name)}));
  }
  TRY(insert_host_spans());
  return insert_rank_steps();
}

Status RunWriter::add_step(const StepRow& row, const std::vector<KernelSample>& samples,
                           const std::vector<Activity>& activities) {
  impl_->steps.push_back(row);
  for (const KernelSample& sample : samples) impl_->samples.emplace_back(row.step, sample);
  for (const Activity& activity : activities) impl_->activities.push_back(trace_activity(activity, row.step));
  const bool due =
      impl_->steps.size() >= kCommitSteps || monotonic_ns() - impl_->last_commit_ns >= kCommitIntervalNs;
  return due ? flush() : Status();
}

void RunWriter::add_evaluation(const EvaluationRow& row) { impl_->evaluations.push_back(row); }

void RunWriter::add_host_spans(std::vector<HostSpan> step) { impl_->host.push_back(std::move(step)); }

Status RunWriter::write_ranks(const std::vector<RankRow>& ranks) {
  return impl_->transact([&]() -> Status {
    Statement row = TRY(impl_->inserter("rank", 8));
    for (const RankRow& r : ranks) {
      TRY(impl_->insert("rank", row,
                        {impl_->run, r.rank, std::string_view(r.host), r.local_rank, r.threads,
                         std::string_view(r.cpu_model), r.clock_offset_ns, r.clock_error_ns}));
      TRY(impl_->insert_rank_environment(r.rank, r.environment));
    }
    return {};
  });
}

void RunWriter::add_rank_step(std::int64_t step, RankStep times) {
  impl_->rank_steps.emplace_back(step, std::move(times));
}

Status RunWriter::flush() {
  if (impl_->steps.empty() && impl_->evaluations.empty()) return {};
  TRY(impl_->transact([&] { return impl_->insert_steps(); }));
  impl_->steps.clear();
  impl_->evaluations.clear();
  impl_->samples.clear();
  impl_->activities.clear();
  impl_->host.clear();
  impl_->rank_steps.clear();
  return {};
}

Status RunWriter::finish(const RunFinish& finish) {
  TRY(flush());
  TRY(impl_->transact([&]() -> Status {
    TRY(impl_->insert_environment(finish.environment));
    for (std::size_t rank = 0; rank < finish.rank_environments.size(); ++rank)
      TRY(impl_->insert_rank_environment(static_cast<std::int64_t>(rank), finish.rank_environments[rank]));
    TRY(impl_->insert_implementations(finish.implementations));
    Statement row =
        TRY(impl_->store.database.prepare("UPDATE run SET status = ?, message = ?, finished_utc = ?, "
                                          "measured_peak_bytes = ?, overhead = ?, overhead_low = ?,"
                                          " overhead_high = ? WHERE id = ?"));
    const std::string finished = utc_timestamp();
    const bool known = finish.overhead > -1;
    const auto number = [&](double value) { return known ? Cell(value) : Cell(nullptr); };
    return row.run({std::string_view(finish.status), std::string_view(finish.message),
                    std::string_view(finished), finish.measured_peak_bytes, number(finish.overhead),
                    number(finish.overhead_low), number(finish.overhead_high), impl_->run});
  }));
  impl_->finished = true;
  return {};
}

}  // namespace gradloom
