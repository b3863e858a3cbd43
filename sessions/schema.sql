-- Gradloom session file, version 12. This text is the documentation of the format and what the program runs to create it.
--
-- A session is one SQLite database (WAL mode) that holds runs. A run is one training: what was asked for, the graph and the plan it
-- became, what every pass did to them, and what was measured. All times are integers in nanoseconds; start_ns values are on the
-- monotonic clock of the machine that ran. All sizes are bytes. A run's rows are found by `run`; ids inside a run (node, plan_step,
-- source, pass) count from 0.
--
-- Start here: v_kernels (kernels joined to nodes and ONNX nodes, with times), v_nodes (time per ONNX node), v_phases, v_passes,
-- v_instances, v_loop (recorded loops), v_ranks (runs of several ranks).
--   SELECT onnx_nodes, phase, kernel, median_ns FROM v_kernels WHERE run = 1 ORDER BY total_ns DESC LIMIT 20;
--
-- Version 2 added what belongs to GPUs: activity with its index, v_streams and CUPTI_ACTIVITY_KIND_MEMCPY. Version 3 added loss_scale with
-- its index, version 4 trial, version 5 evaluation with its index, version 6 pass_instance with its index and v_instances, version 7
-- host_span with its index and v_loop, version 8 rank, rank_sample and exchange with their indices, v_ranks, and implementation with its
-- index, version 9 annotation and prediction, version 10 configuration, version 11 exchange_step with its index and rank_environment; v_ranks
-- reads it, and v_kernels and v_nodes are quicker. Version 12 added thread_sample with its index. An older file gets them when it is opened for
-- writing; its runs keep their digests, which do not know these.
--
-- A loop of another program (gradloom.record, run.data is 'loop') is a run, too: its steps are those of the loop, and it has a row in plan
-- for each plan that its modules ran, whose nodes, plan steps, buffers and passes are numbered one plan behind the other and named
-- MODULE/NAME. Its recipe, optimizer, loss and precision are empty, because they are the program's.
--
-- A trace of another profiler (gradloom import, run.data is 'kineto', 'onnxruntime' or 'nsys') is a run, too: its plan steps are its kernels,
-- each with a graph node of its own, its ONNX nodes are the operators that the program called, and a kernel that ran several times in a step has
-- several samples of it. It has no plan, buffers and passes, its losses are 'nan', and its environment is what the trace tells
-- (trace.X) and what its import noted (import.X). Traces of all ranks of a job are one run: exchanges are its kernels of NCCL, and micro counts
-- the executions of such a kernel in a step.

PRAGMA application_id = 0x47724c6d;  -- "GrLm"
PRAGMA user_version = 12;

-- One training run. status: running, done, stopped, failed; a run that is 'running' although its process is gone was interrupted.
CREATE TABLE run (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,                     -- label, may be empty
  status TEXT NOT NULL CHECK (status IN ('running', 'done', 'stopped', 'failed')),
  message TEXT NOT NULL,                  -- why it failed
  started_utc TEXT NOT NULL,              -- ISO 8601
  finished_utc TEXT,
  process TEXT NOT NULL,                  -- boot id, process id and its start time: tells a living run from an interrupted one
  command TEXT NOT NULL,                  -- the equivalent command line
  model TEXT NOT NULL,                    -- path of the ONNX file
  model_hash TEXT NOT NULL,               -- XXH3-128 of its bytes, hexadecimal
  device TEXT NOT NULL,                   -- cpu, cuda:0, ...
  "precision" TEXT NOT NULL,              -- f32, ...
  optimizer TEXT NOT NULL,
  loss TEXT NOT NULL,
  data TEXT NOT NULL,
  passes TEXT NOT NULL,                   -- pipeline text, e.g. fuse-gelu,fuse-elementwise{max_nodes=16}
  planner TEXT NOT NULL,
  seed INTEGER NOT NULL,                  -- unsigned 64 bit, stored as the signed number of the same bits
  planned_steps INTEGER NOT NULL,
  graph_hash TEXT NOT NULL,
  plan_hash TEXT NOT NULL,
  recipe TEXT NOT NULL,                   -- the run as a recipe (recipe.schema.json)
  measured_peak_bytes INTEGER NOT NULL,   -- taken from the device
  overhead REAL,                          -- what timing kernels costs, as a fraction of a step; NULL: not measured
  overhead_low REAL,                      -- its 95 % interval
  overhead_high REAL,
  digest TEXT NOT NULL                    -- XXH3-64 of this row and of the rows of each table of the run, renewed by every commit
) STRICT;

-- Machine and build the run was made with: cpu_model, isa, threads, kernel, governor, load_before, load_after, version, ...
-- Of a GPU, as its driver tells ("not measured" where it does not): gpu.name, gpu.driver, gpu.libraries; gpu.start.X before the first
-- step and gpu.X while the last one ran, with X sm_clock_mhz, memory_clock_mhz, temperature_c, power_mw, power_limit_mw,
-- utilization_percent; over the whole run gpu.throttle (every reason seen, or none), gpu.other_processes (most), gpu.min_sm_clock_mhz,
-- gpu.max_temperature_c, gpu.max_power_mw; gpu.kernel_times: where they are from, trace, events or none, and why. A name that was written
-- again at the end of the run counts as written there.
-- model.from_session: the model's path from the session's folder, for when both have moved together. It is looked for at run.model (an
-- absolute path; older runs have it as it was typed), then there, then beside the session; run.model_hash tells whether it is the same.
-- source.commit, source.branch, source.changed: of the git repository that the recipe lies in (without one the folder that the command was
-- started in, of a recorded loop its script), and how many of its tracked files differed. A folder without one has no such rows.
CREATE TABLE environment (
  run INTEGER NOT NULL REFERENCES run(id),
  name TEXT NOT NULL,
  value TEXT NOT NULL
) STRICT;

-- ONNX nodes of the model (and the loss that was added).
CREATE TABLE source_node (
  run INTEGER NOT NULL REFERENCES run(id),
  source INTEGER NOT NULL,
  name TEXT NOT NULL,
  op TEXT NOT NULL,
  domain TEXT NOT NULL,
  scope TEXT NOT NULL                     -- module path, e.g. layers.0/attn
) STRICT;

-- Nodes of the training graph after all passes: forward, loss, backward and optimizer.
CREATE TABLE graph_node (
  run INTEGER NOT NULL REFERENCES run(id),
  node INTEGER NOT NULL,
  name TEXT NOT NULL,
  op TEXT NOT NULL,
  phase TEXT NOT NULL,                    -- forward, loss, backward, optimizer
  scope TEXT NOT NULL,                    -- of its first ONNX node
  pass TEXT NOT NULL,                     -- the passes that made or changed it or what it was made of, in order, e.g.
                                          -- fuse-gelu,fuse-elementwise; empty: import, autodiff, trainer
  attributes TEXT NOT NULL,
  output_types TEXT NOT NULL              -- e.g. f32[8, 64, 128]
) STRICT;

-- Provenance: the ONNX nodes that a graph node stands for (a fused node has several; a backward node has the ones it differentiates).
CREATE TABLE node_source (
  run INTEGER NOT NULL REFERENCES run(id),
  node INTEGER NOT NULL,
  source INTEGER NOT NULL
) STRICT;

-- The memory plan, known before the run.
CREATE TABLE plan (
  run INTEGER NOT NULL REFERENCES run(id),
  planner TEXT NOT NULL,
  hash TEXT NOT NULL,
  peak_bytes INTEGER NOT NULL,            -- arena + state + input + constant
  arena_bytes INTEGER NOT NULL,
  state_bytes INTEGER NOT NULL,
  input_bytes INTEGER NOT NULL,
  constant_bytes INTEGER NOT NULL,
  lower_bound_bytes INTEGER NOT NULL,     -- of the arena: no planner can do better
  peak_step INTEGER NOT NULL,             -- plan step with the most live bytes
  plan_ms REAL NOT NULL
) STRICT;

-- Steps of the plan, in execution order: one kernel each.
CREATE TABLE plan_step (
  run INTEGER NOT NULL REFERENCES run(id),
  plan_step INTEGER NOT NULL,
  node INTEGER NOT NULL,
  kernel TEXT NOT NULL,
  stream INTEGER NOT NULL,
  micro INTEGER NOT NULL,                 -- 1: runs for every micro-batch; 0: once per optimizer step
  workspace_bytes INTEGER NOT NULL,
  live_bytes INTEGER NOT NULL,            -- of the arena, while it runs
  flops REAL NOT NULL,
  bytes_read REAL NOT NULL,
  bytes_written REAL NOT NULL
) STRICT;

-- On a GPU, what computed the kernels of plan steps that a library could compute, as they were launched last. On the CPU the name of the
-- kernel in plan_step says it.
CREATE TABLE implementation (
  run INTEGER NOT NULL REFERENCES run(id),
  plan_step INTEGER NOT NULL,
  number INTEGER NOT NULL,                -- of the plan step's, in the order of launching, from 0
  kernel TEXT NOT NULL,                   -- gemm, convolution, attention, ...
  library TEXT NOT NULL,                  -- its name and version; empty: a kernel of ours
  detail TEXT NOT NULL,                   -- the library's algorithm; of a kernel of ours why no library computed it
  failed INTEGER NOT NULL                 -- 1: it was work for a library that is missing or failed at it
) STRICT;

-- Storage. Values that share a buffer (views, in-place updates, parts of one of them) have one row each, parts after the whole.
CREATE TABLE buffer (
  run INTEGER NOT NULL REFERENCES run(id),
  buffer INTEGER NOT NULL,
  value TEXT NOT NULL,
  place TEXT NOT NULL,                    -- arena, state, input, constant, host
  offset INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  first_step INTEGER NOT NULL,            -- lifetime in plan steps, inclusive
  last_step INTEGER NOT NULL
) STRICT;

-- Passes as they ran. A pass of both phases has two rows.
CREATE TABLE pass (
  run INTEGER NOT NULL REFERENCES run(id),
  pass INTEGER NOT NULL,
  name TEXT NOT NULL,
  phase TEXT NOT NULL,                    -- pre_gradient, post_gradient
  matched INTEGER NOT NULL,
  rejected INTEGER NOT NULL,
  nodes_before INTEGER NOT NULL,
  nodes_after INTEGER NOT NULL,
  ms REAL NOT NULL
) STRICT;

-- Every site a pass looked at: what it did, or why it did not.
CREATE TABLE pass_match (
  run INTEGER NOT NULL REFERENCES run(id),
  pass INTEGER NOT NULL,
  rule TEXT NOT NULL,
  site TEXT NOT NULL,                     -- name of the anchor node; exclude it in a recipe to switch this instance off
  matched INTEGER NOT NULL,
  why TEXT NOT NULL,
  removed TEXT NOT NULL,                  -- node names, JSON array
  added TEXT NOT NULL,
  sources TEXT NOT NULL                   -- source ids, JSON array
) STRICT;

-- Fingerprints of the instances in pass_match: hashes of what was matched and of the ONNX nodes it stands for, which stay when other passes
-- are switched and nodes get other names. --passes 'PASS{only=FINGERPRINT}' and {except=FINGERPRINT} take them. Rows of pass_match
-- without one looked at no instance, or follow from others.
CREATE TABLE pass_instance (
  run INTEGER NOT NULL REFERENCES run(id),
  pass INTEGER NOT NULL,
  number INTEGER NOT NULL,                -- of the pass's rows in pass_match, from 0
  fingerprint TEXT NOT NULL               -- e.g. @3f9a1c20b7d4, of equal ones the second @3f9a1c20b7d4.2
) STRICT;

-- Optimizer steps. NaN and infinite numbers are stored in loss_text ('nan', 'inf', '-inf') with loss NULL.
CREATE TABLE loss (
  run INTEGER NOT NULL REFERENCES run(id),
  step INTEGER NOT NULL,                  -- from 1
  loss REAL,
  loss_text TEXT,
  step_ns INTEGER NOT NULL,
  lr REAL NOT NULL,
  grad_norm REAL,                         -- before clipping; NULL: not computed
  timed INTEGER NOT NULL                  -- 1: kernel by kernel
) STRICT;

-- Loss scaling (precision f16): a row per step.
CREATE TABLE loss_scale (
  run INTEGER NOT NULL REFERENCES run(id),
  step INTEGER NOT NULL,
  scale REAL NOT NULL,                    -- of the next step
  skipped INTEGER NOT NULL                -- steps in a row that were skipped because gradients overflowed; 0: this one was made
) STRICT;

-- Mean losses over held-out data, of the forward graph without Dropout and with running statistics. NaN and infinite numbers are stored
-- as in loss.
CREATE TABLE evaluation (
  run INTEGER NOT NULL REFERENCES run(id),
  step INTEGER NOT NULL,                  -- after which it was made
  loss REAL,
  loss_text TEXT,
  batches INTEGER NOT NULL,
  eval_ns INTEGER NOT NULL                -- the whole evaluation, with making its batches
) STRICT;

-- Kernel executions of timed steps.
CREATE TABLE kernel_sample (
  run INTEGER NOT NULL REFERENCES run(id),
  step INTEGER NOT NULL,
  micro INTEGER NOT NULL,
  plan_step INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL
) STRICT;

-- What else happened in the timed steps of a GPU run: its copies and fills (and kernels of no plan step), and the launches by the host,
-- all on the clock of kernel_sample. A launch belongs to the kernel_sample of the same step, micro and plan_step.
CREATE TABLE activity (
  run INTEGER NOT NULL REFERENCES run(id),
  step INTEGER NOT NULL,
  micro INTEGER NOT NULL,                 -- of a launch
  kind TEXT NOT NULL,                     -- copy, fill, kernel: on a stream of the device; launch: by the host
  stream INTEGER,                         -- 0 computes, 1 uploads, 2 downloads; NULL: the host
  plan_step INTEGER,                      -- NULL: of no plan step; of the launch of a recorded step: its first one
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  name TEXT NOT NULL
) STRICT;

-- What the thread of a recorded loop did in each step, on the clock of kernel_sample. Spans lie inside one another; a span's own time is
-- its duration without those of the spans directly inside it, so the own times of a step add up to its duration. Kinds:
--   step       the whole step; its own time is Python and whatever else is not below
--   data       the next batch of a torch DataLoader
--   engine     a plan's forward or backward: kernels, and what the engine does between them
--   gradloom   the package around them
--   compile    a module is traced and compiled
--   outside    what a module of the engine leaves to PyTorch: a submodule or torch.autograd.Function, forward or backward
--   module     the forward of another module, in PyTorch
--   backward   a backward of autograd; its own time is PyTorch's part of it
--   optimizer  an optimizer's step
--   python     what the program marked itself
--   record     the recording
CREATE TABLE host_span (
  run INTEGER NOT NULL REFERENCES run(id),
  step INTEGER NOT NULL,
  span INTEGER NOT NULL,                  -- in the step, from 0, by start; 0 is the step
  parent INTEGER,                         -- the span that it lies in; NULL: none, it is the step
  kind TEXT NOT NULL,
  name TEXT NOT NULL,                     -- of the module, function, data set or optimizer
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL
) STRICT;

-- The ranks of a run of several. All other tables hold what rank 0 did, and all times are on its clock: those of a rank on another
-- machine were moved there, by the difference of the clocks as it was found anew in each timed step.
CREATE TABLE rank (
  run INTEGER NOT NULL REFERENCES run(id),
  rank INTEGER NOT NULL,
  host TEXT NOT NULL,                     -- name of its machine
  local_rank INTEGER NOT NULL,            -- among the ranks of that machine
  threads INTEGER NOT NULL,               -- that its kernels use
  cpu_model TEXT NOT NULL,
  clock_offset_ns INTEGER NOT NULL,       -- that its clock was ahead of rank 0's when the run began
  clock_error_ns INTEGER NOT NULL         -- how wrong that may be; 0: it is the same clock
) STRICT;

-- Machine and build of the other ranks, as environment has rank 0's.
CREATE TABLE rank_environment (
  run INTEGER NOT NULL REFERENCES run(id),
  rank INTEGER NOT NULL,                  -- from 1
  name TEXT NOT NULL,
  value TEXT NOT NULL
) STRICT;

-- Plan steps whose kernels stand still while ranks exchange: they wait for other ranks and for the transfer, and compute next to nothing.
CREATE TABLE exchange_step (
  run INTEGER NOT NULL REFERENCES run(id),
  plan_step INTEGER NOT NULL
) STRICT;

-- Kernel executions of the other ranks in timed steps, as kernel_sample has rank 0's. All ranks run the same plan; where pass zero gave each
-- one of its own, plan_step is the step of rank 0's plan whose node has the same name, and others have no rows.
CREATE TABLE rank_sample (
  run INTEGER NOT NULL REFERENCES run(id),
  rank INTEGER NOT NULL,                  -- from 1
  step INTEGER NOT NULL,
  micro INTEGER NOT NULL,
  plan_step INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL
) STRICT;

-- Exchanges between the ranks in timed steps, as each took part in them: while a kernel ran (exchange_step), or behind
-- the kernels that followed the one that began it (AllReduceBegin). What is not wait_ns is the transfer.
CREATE TABLE exchange (
  run INTEGER NOT NULL REFERENCES run(id),
  rank INTEGER NOT NULL,
  step INTEGER NOT NULL,
  micro INTEGER NOT NULL,
  plan_step INTEGER NOT NULL,             -- of that kernel
  start_ns INTEGER NOT NULL,              -- this rank was ready
  duration_ns INTEGER NOT NULL,
  wait_ns INTEGER NOT NULL,               -- of it, until the last rank was ready
  sent_bytes INTEGER NOT NULL             -- by this rank
) STRICT;

-- What the CPU's threads did of kernel executions in timed steps, on the clock of kernel_sample. An execution without rows was computed by the
-- thread 0 alone, which begins every kernel; with rows, a thread without one had no part of it.
CREATE TABLE thread_sample (
  run INTEGER NOT NULL REFERENCES run(id),
  step INTEGER NOT NULL,
  micro INTEGER NOT NULL,
  plan_step INTEGER NOT NULL,
  thread INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,              -- of its first part; of thread 0 of the kernel
  duration_ns INTEGER NOT NULL,           -- to the end of its last part; of thread 0 of the kernel
  busy_ns INTEGER NOT NULL                -- of it with parts; of thread 0 all but waiting for parts of others
) STRICT;

-- What was written on a run afterwards (gradloom runs --tag, --note, --pin); a run on which nothing was has no row. Its name is in run.
CREATE TABLE annotation (
  run INTEGER PRIMARY KEY REFERENCES run(id),
  tags TEXT NOT NULL,                     -- words in the order of the alphabet, joined by commas; may be empty
  note TEXT NOT NULL,
  pinned INTEGER NOT NULL                 -- 1: shown first, and not deleted
) STRICT;

-- Comparisons of two configurations; body is the whole result as JSON (tables, intervals).
CREATE TABLE comparison (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  created_utc TEXT NOT NULL,
  run_a INTEGER REFERENCES run(id),
  run_b INTEGER REFERENCES run(id),
  a TEXT NOT NULL,
  b TEXT NOT NULL,
  verdict TEXT NOT NULL,                  -- FASTER, SLOWER, SAME, UNSURE: B against A
  ratio REAL NOT NULL,                    -- time A / time B, with its 95 % interval
  ratio_low REAL NOT NULL,
  ratio_high REAL NOT NULL,
  max_loss_difference REAL,               -- NULL: not a number
  body TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT;

-- Parameters found by trying (tile sizes, algorithms), reusable on equal hardware.
CREATE TABLE tuning (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  hardware TEXT NOT NULL,
  key TEXT NOT NULL,                      -- kernel, types, shapes
  choice TEXT NOT NULL,
  time_ns INTEGER NOT NULL,
  UNIQUE (hardware, key)
) STRICT;

-- Configurations that gradloom tune measured against the job it was given. A configuration that was measured more than once has a row each
-- time; its last one had the most time.
CREATE TABLE trial (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  created_utc TEXT NOT NULL,
  job TEXT NOT NULL,                      -- XXH3-128 of what is tuned: the job's recipe, its model and the hardware
  changes TEXT NOT NULL,                  -- from the job, as compare --b takes them; empty: the job itself
  plan_hash TEXT NOT NULL,
  round INTEGER NOT NULL,                 -- 1: the first measurement
  ratio REAL NOT NULL,                    -- time of the job / time of this, with its 95 % interval
  ratio_low REAL NOT NULL,
  ratio_high REAL NOT NULL,
  step_ns REAL NOT NULL,                  -- median
  predicted_ns REAL NOT NULL,             -- by the cost model, before it was measured
  peak_bytes INTEGER NOT NULL,            -- of the plan
  recipe TEXT NOT NULL,                   -- the configuration as a recipe (recipe.schema.json)
  digest TEXT NOT NULL                    -- XXH3-64 of this row
) STRICT;

-- What gradloom tune knows of a job and of each configuration that it measured, besides the measurements, which are in trial. Of several rows of
-- one job, changes and plan the last one holds.
CREATE TABLE configuration (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  created_utc TEXT NOT NULL,
  job TEXT NOT NULL,                      -- as in trial
  changes TEXT NOT NULL,                  -- as in trial; empty: the job itself
  label TEXT NOT NULL,                    -- the changes for people
  plan_hash TEXT NOT NULL,
  peak_bytes INTEGER NOT NULL,            -- of the plan
  step_ns REAL NOT NULL,                  -- median of the job's step, as it was when this was measured
  predicted REAL NOT NULL,                -- time of the job / time of this, by the cost model; 0: it could not tell
  error REAL NOT NULL,                    -- largest relative error of a gradient against f64; -1: not measured
  recipe TEXT NOT NULL,                   -- the configuration as a recipe (recipe.schema.json)
  digest TEXT NOT NULL                    -- XXH3-64 of this row
) STRICT;

-- What gradloom what-if predicted of a step, to be held against the first run after it that has this plan on this hardware.
CREATE TABLE prediction (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  created_utc TEXT NOT NULL,
  question TEXT NOT NULL,                 -- what would be different: "precision=bf16"
  plan_hash TEXT NOT NULL,                -- of the run that measures it; empty: none can (faster kernels, another processor)
  hardware TEXT NOT NULL,                 -- as environment has it
  step_ns REAL NOT NULL,                  -- of the job, when it was predicted
  predicted_ns REAL NOT NULL,
  low_ns REAL NOT NULL,                   -- its range
  high_ns REAL NOT NULL,
  recipe TEXT NOT NULL,                   -- the changed job (recipe.schema.json)
  digest TEXT NOT NULL                    -- XXH3-64 of this row
) STRICT;

CREATE INDEX environment_of_run ON environment(run);
CREATE INDEX source_of_run ON source_node(run, source);
CREATE INDEX node_of_run ON graph_node(run, node);
CREATE INDEX node_source_of_run ON node_source(run, node, source);
CREATE INDEX plan_of_run ON plan(run);
CREATE INDEX plan_step_of_run ON plan_step(run, plan_step);
CREATE INDEX buffer_of_run ON buffer(run, buffer);
CREATE INDEX pass_of_run ON pass(run, pass);
CREATE INDEX pass_match_of_run ON pass_match(run, pass);
CREATE INDEX pass_instance_of_run ON pass_instance(run, pass, number);
CREATE INDEX loss_of_run ON loss(run, step);
CREATE INDEX kernel_sample_of_run ON kernel_sample(run, plan_step, duration_ns, step);
CREATE INDEX activity_of_run ON activity(run, step);
CREATE INDEX loss_scale_of_run ON loss_scale(run, step);
CREATE INDEX evaluation_of_run ON evaluation(run, step);
CREATE INDEX host_span_of_run ON host_span(run, step, span);
CREATE INDEX rank_of_run ON rank(run, rank);
CREATE INDEX rank_sample_of_run ON rank_sample(run, step, rank);
CREATE INDEX exchange_of_run ON exchange(run, step, rank);
CREATE INDEX exchange_step_of_run ON exchange_step(run, plan_step);
CREATE INDEX thread_sample_of_run ON thread_sample(run, step, plan_step);
CREATE INDEX implementation_of_run ON implementation(run, plan_step, number);

-- Times of a plan step over all its executions. share: of all kernel time of the run, with what something else disturbed; `show` and the
-- window go by the medians of steps instead.
CREATE VIEW kernel_summary AS
WITH ranked AS (
  SELECT run, plan_step, duration_ns,
    row_number() OVER (PARTITION BY run, plan_step ORDER BY duration_ns) AS rank,
    count(*) OVER (PARTITION BY run, plan_step) AS samples
  FROM kernel_sample
)
SELECT run, plan_step, max(samples) AS samples,
  CAST(avg(CASE WHEN rank IN ((samples + 1) / 2, (samples + 2) / 2) THEN duration_ns END) AS INTEGER) AS median_ns,
  min(duration_ns) AS min_ns, max(duration_ns) AS max_ns, sum(duration_ns) AS total_ns,
  1.0 * sum(duration_ns) / sum(sum(duration_ns)) OVER (PARTITION BY run) AS share
FROM ranked GROUP BY run, plan_step;

-- Kernels joined to graph nodes and to the ONNX nodes they come from. CROSS JOIN: in this order each look-up has an index.
CREATE VIEW v_kernels AS
SELECT p.run, p.plan_step, p.kernel, n.name AS node, n.op, n.phase, n.scope, n.pass,
  (SELECT group_concat(s.name, ' ') FROM node_source j CROSS JOIN source_node s ON s.run = j.run AND s.source = j.source
   WHERE j.run = p.run AND j.node = p.node) AS onnx_nodes,
  k.samples, k.median_ns, k.min_ns, k.total_ns, k.share, p.flops, p.bytes_read + p.bytes_written AS bytes, p.live_bytes
FROM plan_step p
JOIN graph_node n ON n.run = p.run AND n.node = p.node
LEFT JOIN kernel_summary k ON k.run = p.run AND k.plan_step = p.plan_step;

-- Time per ONNX node and phase. A fused kernel's time is divided evenly over its ONNX nodes.
CREATE VIEW v_nodes AS
WITH timed AS MATERIALIZED (
  SELECT p.run, p.node, k.total_ns, k.median_ns
  FROM plan_step p LEFT JOIN kernel_summary k ON k.run = p.run AND k.plan_step = p.plan_step
), part AS (
  SELECT j.run, j.node, j.source, (SELECT count(*) FROM node_source o WHERE o.run = j.run AND o.node = j.node) AS parts
  FROM node_source j
)
SELECT s.run, s.source, s.name, s.op, s.scope, n.phase, count(*) AS kernels,
  sum(t.total_ns / j.parts) AS total_ns, sum(t.median_ns / j.parts) AS median_ns
FROM timed t
CROSS JOIN graph_node n ON n.run = t.run AND n.node = t.node
CROSS JOIN part j ON j.run = n.run AND j.node = n.node
CROSS JOIN source_node s ON s.run = j.run AND s.source = j.source
GROUP BY s.run, s.source, n.phase;

CREATE VIEW v_phases AS
SELECT run, phase, count(*) AS kernels, sum(median_ns) AS median_ns, sum(total_ns) AS total_ns, sum(share) AS share
FROM v_kernels GROUP BY run, phase;

CREATE VIEW v_passes AS
SELECT run, pass, name, phase, matched, rejected, nodes_before - nodes_after AS nodes_saved, ms FROM pass;

-- Instances with what --passes calls them: by site, and by fingerprint.
CREATE VIEW v_instances AS
WITH matches AS (
  SELECT run, pass, rule, site, matched, why, row_number() OVER (PARTITION BY run, pass ORDER BY rowid) - 1 AS number FROM pass_match
)
SELECT i.run, p.name AS pass, m.rule, m.site, i.fingerprint, m.matched, m.why
FROM pass_instance i
JOIN matches m ON m.run = i.run AND m.pass = i.pass AND m.number = i.number
JOIN pass p ON p.run = i.run AND p.pass = i.pass;

-- Per timed step what each stream of the device did, beside the host's launches (stream NULL).
CREATE VIEW v_streams AS
WITH work AS (
  SELECT k.run, k.step, p.stream, 'kernel' AS kind, k.duration_ns, 0 AS bytes
  FROM kernel_sample k JOIN plan_step p ON p.run = k.run AND p.plan_step = k.plan_step
  UNION ALL SELECT run, step, stream, kind, duration_ns, bytes FROM activity
)
SELECT run, step, stream, kind, count(*) AS count, sum(duration_ns) AS total_ns, sum(bytes) AS bytes
FROM work GROUP BY run, step, stream, kind;

-- Own times of a recorded loop's spans by step, kind and name.
CREATE VIEW v_loop AS
WITH inside AS (SELECT run, step, parent, sum(duration_ns) AS ns FROM host_span WHERE parent IS NOT NULL GROUP BY run, step, parent)
SELECT s.run, s.step, s.kind, s.name, count(*) AS spans, sum(s.duration_ns) AS total_ns, sum(s.duration_ns - coalesce(i.ns, 0)) AS own_ns
FROM host_span s LEFT JOIN inside i ON i.run = s.run AND i.step = s.step AND i.parent = s.span
GROUP BY s.run, s.step, s.kind, s.name;

-- What each rank did in each timed step: kernels_ns computing, exposed_ns with its kernels standing still for exchanges, of which
-- exchange_ns were made in all, wait_ns of that waiting for the last rank. A run of versions 8 to 10 has no exchange_step: operators tell.
-- Imported kernels of NCCL run beside others: they count whole here, while `show` leaves out what others cover.
CREATE VIEW v_ranks AS
WITH kernels AS (
  SELECT k.run, 0 AS rank, k.step, k.plan_step, k.duration_ns FROM kernel_sample k WHERE k.run IN (SELECT run FROM rank)
  UNION ALL SELECT run, rank, step, plan_step, duration_ns FROM rank_sample
), computed AS (
  SELECT k.run, k.rank, k.step, k.duration_ns, CASE WHEN k.run IN (SELECT run FROM exchange_step)
      THEN EXISTS (SELECT 1 FROM exchange_step s WHERE s.run = k.run AND s.plan_step = k.plan_step)
      ELSE n.op IN ('AllReduceMean', 'AllReduceSum', 'AllReduceAdasum', 'AllReduceWait', 'ShareParameters') END AS waits
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

-- Shapes that scripts for Nsight Systems exports expect.
CREATE VIEW StringIds AS SELECT run * 1000000 + plan_step AS id, kernel AS value FROM plan_step;
CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS
SELECT k.start_ns AS start, k.start_ns + k.duration_ns AS end, 0 AS deviceId, 0 AS contextId, p.stream AS streamId,
  k.rowid AS correlationId, k.run * 1000000 + k.plan_step AS demangledName, k.run * 1000000 + k.plan_step AS shortName
FROM kernel_sample k JOIN plan_step p ON p.run = k.run AND p.plan_step = k.plan_step;
-- copyKind 0: the direction is not recorded.
CREATE VIEW CUPTI_ACTIVITY_KIND_MEMCPY AS
SELECT start_ns AS start, start_ns + duration_ns AS end, 0 AS deviceId, 0 AS contextId, stream AS streamId, rowid AS correlationId,
  bytes, 0 AS copyKind
FROM activity WHERE kind = 'copy';
