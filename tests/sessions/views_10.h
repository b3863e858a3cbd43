// Views as version 10 of the session format had them: SQL that gives them to a file, in place of its own.
#pragma once

#include <string>

namespace gradloom::test {

constexpr const char kViews10[] = R"(DROP VIEW v_kernels; DROP VIEW v_nodes; DROP VIEW v_ranks;
CREATE VIEW v_kernels AS
SELECT p.run, p.plan_step, p.kernel, n.name AS node, n.op, n.phase, n.scope, n.pass,
  (SELECT group_concat(s.name, ' ') FROM node_source j JOIN source_node s ON s.run = j.run AND s.source = j.source
   WHERE j.run = p.run AND j.node = p.node) AS onnx_nodes,
  k.samples, k.median_ns, k.min_ns, k.total_ns, k.share, p.flops, p.bytes_read + p.bytes_written AS bytes, p.live_bytes
FROM plan_step p
JOIN graph_node n ON n.run = p.run AND n.node = p.node
LEFT JOIN kernel_summary k ON k.run = p.run AND k.plan_step = p.plan_step;
CREATE VIEW v_nodes AS
WITH parts AS (SELECT run, node, count(*) AS parts FROM node_source GROUP BY run, node)
SELECT s.run, s.source, s.name, s.op, s.scope, n.phase, count(*) AS kernels,
  sum(k.total_ns / parts.parts) AS total_ns, sum(k.median_ns / parts.parts) AS median_ns
FROM source_node s
JOIN node_source j ON j.run = s.run AND j.source = s.source
JOIN parts ON parts.run = j.run AND parts.node = j.node
JOIN graph_node n ON n.run = j.run AND n.node = j.node
JOIN plan_step p ON p.run = n.run AND p.node = n.node
LEFT JOIN kernel_summary k ON k.run = p.run AND k.plan_step = p.plan_step
GROUP BY s.run, s.source, n.phase;
CREATE VIEW v_ranks AS
WITH kernels AS (
  SELECT k.run, 0 AS rank, k.step, k.plan_step, k.duration_ns FROM kernel_sample k WHERE k.run IN (SELECT run FROM rank)
  UNION ALL SELECT run, rank, step, plan_step, duration_ns FROM rank_sample
), computed AS (
  SELECT k.run, k.rank, k.step, n.op IN ('AllReduceMean', 'AllReduceAdasum', 'AllReduceWait', 'ShareParameters') AS waits, k.duration_ns
  FROM kernels k
  JOIN plan_step p ON p.run = k.run AND p.plan_step = k.plan_step
  JOIN graph_node n ON n.run = p.run AND n.node = p.node
), exchanged AS (
  SELECT run, rank, step, sum(duration_ns) AS exchange_ns, sum(wait_ns) AS wait_ns, sum(sent_bytes) AS sent_bytes
  FROM exchange GROUP BY run, rank, step
)
SELECT c.run, c.rank, c.step, sum(CASE WHEN c.waits THEN 0 ELSE c.duration_ns END) AS kernels_ns,
  sum(CASE WHEN c.waits THEN c.duration_ns ELSE 0 END) AS exposed_ns, e.exchange_ns, e.wait_ns, e.sent_bytes
FROM computed c LEFT JOIN exchanged e ON e.run = c.run AND e.rank = c.rank AND e.step = c.step
GROUP BY c.run, c.rank, c.step;
)";

// A file as version 10 wrote it.
inline std::string as_version_10() {
  return std::string(kViews10) +
         "DROP INDEX thread_sample_of_run; DROP TABLE thread_sample; DROP TABLE exchange_step; DROP TABLE rank_environment; "
         "UPDATE run SET digest = substr(digest, 1, 22 * 17 - 1); PRAGMA user_version = 10;";
}

}  // namespace gradloom::test
