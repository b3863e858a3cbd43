#include "sessions/run_tables.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/base/csv.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

std::string field(std::int64_t value) { return std::to_string(value); }
std::string field(int value) { return std::to_string(value); }
std::string field(double value) { return std::isnan(value) ? "nan" : number_text(value); }  // never -nan
std::string field(const std::string& text) { return csv_field(text); }

class TableWriter {
 public:
  TableWriter(const char* name, const char* head) : table_{name, std::string(head) + "\n"} {}
  template <class... Values>
  void row(const Values&... values) {
    table_.csv += csv_line({field(values)...});
    ++table_.rows;
  }
  RunTable done() { return std::move(table_); }

 private:
  RunTable table_;
};

// Empty unless `known`.
template <class Value>
std::string known_field(bool known, Value value) {
  return known ? field(value) : "";
}

std::string list_text(const std::vector<std::string>& names) { return fmt::to_string(fmt::join(names, " ")); }

RunTable kernels_table(const RunRecord& run) {
  TableWriter table(
      "kernels",
      "plan_step,node,op,kernel,phase,scope,pass,passes,onnx_nodes,types,implementation,stream,samples,"
      "median_ns,min_ns,total_ns,step_ns,share,flops,bytes_read,bytes_written");
  for (const KernelRow& k : run.kernels) {
    const KernelInfo& i = k.info;
    const bool timed = k.samples > 0;
    table.row(i.plan_step, i.node, i.op, i.kernel, i.phase, i.scope, last_pass(i.passes), i.passes,
              list_text(i.onnx_nodes), i.types, i.implementation, i.stream, k.samples,
              known_field(timed, k.median_ns), known_field(timed, k.min_ns), known_field(timed, k.total_ns),
              known_field(timed, k.step_ns), known_field(timed, k.share), i.flops, i.bytes_read,
              i.bytes_written);
  }
  return table.done();
}

RunTable steps_table(const RunRecord& run) {
  TableWriter table("steps", "step,loss,step_ns,lr,grad_norm,timed,loss_scale,skipped");
  const bool loss = run.summary.has_loss();
  for (const StepRow& s : run.steps)
    table.row(s.step, known_field(loss, s.loss), s.step_ns, known_field(loss, s.lr),
              known_field(s.grad_norm >= 0, s.grad_norm), s.timed ? 1 : 0,
              known_field(s.loss_scale > 0, s.loss_scale), known_field(s.loss_scale > 0, s.skipped));
  return table.done();
}

RunTable evaluations_table(const RunRecord& run) {
  TableWriter table("evaluations", "step,loss,batches,eval_ns");
  for (const EvaluationRow& e : run.evaluations) table.row(e.step, e.loss, e.batches, e.eval_ns);
  return table.done();
}

RunTable passes_table(const RunRecord& run) {
  TableWriter table("passes", "pass,phase,matched,rejected,nodes_before,nodes_after,ms");
  for (const PassRow& p : run.passes)
    table.row(p.name, p.phase, p.matched, p.rejected, p.nodes_before, p.nodes_after, p.ms);
  return table.done();
}

RunTable matches_table(const RunRecord& run) {
  TableWriter table("matches", "pass,rule,site,fingerprint,matched,why");
  for (const PassRow& p : run.passes)
    for (const RewriteRecord& r : p.log)
      table.row(p.name, r.rule, r.site, r.fingerprint, r.matched ? 1 : 0, r.why);
  return table.done();
}

RunTable memory_table(const RunRecord& run) {
  TableWriter table("memory", "values,place,offset,bytes,first_step,last_step,first_node,last_node");
  const auto node = [&](std::int64_t step) {
    return step >= 0 && static_cast<std::size_t>(step) < run.kernels.size()
               ? run.kernels[static_cast<std::size_t>(step)].info.node
               : std::string();
  };
  for (const BufferRow& b : run.buffers)
    table.row(list_text(b.values), b.place, b.offset, b.bytes, b.first_step, b.last_step, node(b.first_step),
              node(b.last_step));
  return table.done();
}

RunTable exchanges_table(const TraceDocument& trace) {
  TableWriter table("exchanges", "rank,step,micro,plan_step,node,start_ns,duration_ns,wait_ns,sent_bytes");
  for (const TraceExchange& e : trace.exchanges) {
    const auto at = static_cast<std::size_t>(e.plan_step);
    const bool known = e.plan_step >= 0 && at < trace.kernels.size();
    table.row(e.rank, e.step, e.micro, e.plan_step, known ? trace.kernels[at].node : std::string(),
              e.start_ns, e.duration_ns, e.wait_ns, e.sent_bytes);
  }
  return table.done();
}

}  // namespace

std::vector<RunTable> run_tables(const RunRecord& run, const TraceDocument& trace) {
  return {kernels_table(run), steps_table(run),  evaluations_table(run), passes_table(run),
          matches_table(run), memory_table(run), exchanges_table(trace)};
}

}  // namespace gradloom
