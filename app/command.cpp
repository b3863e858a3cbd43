#include "app/command.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>

#include "app/build_info.h"
#include "app/commands/commands.h"
#include "app/local_ranks.h"
#include "app/parse_words.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr const char *kSee = "See", *kRun = "Run", *kProve = "Prove", *kDecide = "Decide",
                     *kKeep = "Keep and hand over", *kLookUp = "Look up";

constexpr CommandDef kCommands[] = {
    {"open",
     kSee,
     "look at graphs, passes, runs, kernels, memory and comparisons in a window",
     declare_open,
     {"gradloom open model.onnx", "gradloom open s.db",
      "gradloom open model.onnx --headless --screenshot graph.png"}},
    {"inspect",
     kSee,
     "show operators, parameters, dims and FLOPs of a model, and all that prevents its training",
     declare_inspect,
     {"gradloom inspect model.onnx --dim batch=8"}},
    {"plan",
     kSee,
     "show what the passes do, the kernels and the planned memory, without running",
     declare_plan,
     {"gradloom plan model.onnx --dim batch=8 --loss ce:logits,labels --optimizer adamw",
      "gradloom plan model.onnx --dim batch=8 --loss ce:logits,labels --passes default,-fuse-optimizer --log",
      "gradloom plan model.onnx --dim batch=8 --loss ce:logits,labels --device cuda:0 --roofline --on h200",
      "gradloom plan model.onnx --dim batch=8 --loss ce:logits,labels --export-graph step.svg --boxes 200",
      "gradloom plan model.onnx --dim batch=8 --loss ce:logits,labels --find 'phase:bwd flops>1k'"}},
    {"check",
     kProve,
     "compare outputs and gradients with the reference files of test folders",
     declare_check,
     {"gradloom check folder --passes none", "gradloom check --samples Softmax --precision f64"}},
    {"verify",
     kProve,
     "prove that passes and planner keep loss, gradients and updates, or name what does not",
     declare_verify,
     {"gradloom verify model.onnx --dim batch=8 --loss ce:logits,labels"}},
    {"train",
     kRun,
     "run real training steps and record them in a session",
     declare_train,
     {"gradloom train model.onnx --dim batch=8 --loss ce:logits,labels --optimizer 'adamw{lr=1e-3}' --steps 100 --session s.db --name base",
      "gradloom train model.onnx --dim batch=8 --loss ce:logits,labels --steps 20 --passes none --session s.db --name plain"}},
    {"compare",
     kDecide,
     "measure two configurations interleaved, or compare two recorded runs",
     declare_compare,
     {"gradloom compare base plain --session s.db --stored",
      "gradloom compare model.onnx --dim batch=8 --loss ce:logits,labels --b passes=none --max-seconds 5"}},
    {"tune",
     kDecide,
     "search the fastest configuration of a job: passes, instances, threads, precision",
     declare_tune,
     {"gradloom tune model.onnx --dim batch=8 --loss ce:logits,labels --seconds 5 --session trials.db -o fast.json"}},
    {"advise",
     kDecide,
     "name what would make a job or a recorded run faster, by how much, and how to prove it",
     declare_advise,
     {"gradloom advise model.onnx --dim batch=8 --loss ce:logits,labels", "gradloom advise s.db --run base"}},
    {"what-if",
     kDecide,
     "predict how long a step would take with other settings, faster kernels, another processor",
     declare_what_if,
     {"gradloom what-if s.db --run base --b precision=bf16",
      "gradloom what-if s.db --run base --speed 'op:*MatMul*=2'", "gradloom what-if s.db --scores"}},
    {"trends",
     kDecide,
     "show how long a step took from run to run, where that changed, and what changed with it",
     declare_trends,
     {"gradloom trends s.db --check"}},
    {"runs",
     kKeep,
     "list, find, name, tag, pin and delete the runs of a session, with its comparisons",
     declare_runs,
     {"gradloom runs s.db --filter 'tag:base step<10ms -status:failed'",
      "gradloom runs s.db --tag last=base,night --note last='fan off' --pin last"}},
    {"show",
     kSee,
     "show one run: losses, where its time went, memory, passes",
     declare_show,
     {"gradloom show s.db", "gradloom show s.db --run base --group op --limit 10",
      "gradloom show s.db --run base --roofline", "gradloom show s.db --steps --idle",
      "gradloom show s.db --curves loss --with base --smooth 0.9"}},
    {"trace",
     kKeep,
     "write the timings of a run as a trace for Perfetto, Chrome or Nsight Systems, or as CSV",
     declare_trace,
     {"gradloom trace s.db -o trace.pftrace", "gradloom trace s.db --run base --rank 0 -o rank0.json.gz",
      "gradloom trace s.db -o trace.sqlite", "gradloom trace s.db --format csv -o /dev/stdout"}},
    {"report",
     kKeep,
     "write a run as one page to send around: figures, pictures, tables, how to run it again",
     declare_report,
     {"gradloom report s.db --run plain --against base -o report.html"}},
    {"export",
     kKeep,
     "write a run as a recipe that replays anywhere, for other programs, as a launcher's job, or its numbers",
     declare_export_and_views,
     {"gradloom export s.db --run base -o base.json", "gradloom export s.db --run base --csv tables",
      "gradloom export s.db --view roofline -o roofline.csv",
      "gradloom export s.db --graph graph.svg --boxes 200",
      "gradloom export s.db --launch slurm --ranks 8 --local 4"}},
    {"background",
     kRun,
     "run a command without a terminal or window, list those that run so, follow and stop them",
     declare_background,
     {"gradloom background -- train model.onnx --dim batch=8 --loss ce:logits,labels --steps 100 --session s.db",
      "gradloom background", "gradloom background --follow 1"}},
    {"serve",
     kKeep,
     "the far end of `gradloom open ssh://host/s.db`: hand a session of this machine to a window elsewhere",
     declare_serve,
     {"gradloom serve s.db </dev/null >state"}},
    {"import",
     kKeep,
     "read what PyTorch's profiler, ONNX Runtime or Nsight Systems wrote into a session",
     declare_import,
     {"gradloom import kineto.json --session s.db --name pytorch"}},
    {"update-session",
     kKeep,
     "give session files of older programs the newest format, with its views",
     declare_update_session,
     {"gradloom update-session s.db"}},
    {"recipe",
     kLookUp,
     "list the settings of a recipe with flags, types and defaults; check one and say it whole, or make one of DeepSpeed's file",
     declare_recipe,
     {"gradloom recipe", "gradloom recipe optimizer"}},
    {"passes",
     kLookUp,
     "list the optimization passes and memory planners with their options",
     declare_passes,
     {"gradloom passes", "gradloom passes fuse-gelu"}},
    {"ops", kLookUp, "list the operators with opsets, gradients and kernels", declare_ops, {"gradloom ops"}},
    {"devices",
     kLookUp,
     "list the devices that can run training here and why others cannot, or measure them",
     declare_devices,
     {"gradloom devices", "gradloom devices --measure --device cpu"}},
    {"help",
     kLookUp,
     "explain a command and its flags",
     declare_help,
     {"gradloom help train", "gradloom help --completion bash", "gradloom help --man"}},
};

// In usage lines an argument is NAME, [NAME] or [NAME...].
class Usage : public CLI::Formatter {
 public:
  std::string make_option_usage(const CLI::Option* option) const override {
    const std::string name = option->get_single_name() + (option->get_items_expected_max() > 1 ? "..." : "");
    return option->get_required() ? name : "[" + name + "]";
  }
};

constexpr int kInterrupted = static_cast<int>(Errc::interrupted);

// The one end of all commands: what they say went wrong, or else that nobody could hear them.
int end_with(const Output& out, Status status) {
  if (status.ok()) status = out.written();
  if (status.ok()) return 0;
  const Error& error = status.error();
  if (!error.message.empty()) {
    out.progress_done();
    out.error(error.message);
    out.object(error_json(error));
  }
  return static_cast<int>(error.code);
}

int exit_code(const Output& out, const Status& status) {
  return out.claim_end() ? end_with(out, status) : kInterrupted;  // else the signal's thread ends the process
}

// Waits for the signals that ask for an end, in a thread of its own: CommandContext says what they do.
class SignalStop {
 public:
  explicit SignalStop(Output& out) : out_(out) {
    sigemptyset(&set_);
    for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
      // What the parent wants ignored stays so (nohup); a blocked signal would come through nevertheless.
      struct sigaction action {};
      if (sigaction(signal_number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
        sigaddset(&set_, signal_number);
    }
    sigaddset(&set_, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set_, &previous_);
    out.set_stop(source_.get_token());
    waiter_ = std::thread([this] { wait(); });
  }
  ~SignalStop() {  // by then the command has claimed its end: a signal now changes nothing
    pthread_kill(waiter_.native_handle(), SIGUSR1);
    waiter_.join();
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  std::stop_token token() const { return source_.get_token(); }
  std::atomic<int>& finishing() { return finishing_; }

 private:
  void wait() {
    int signal_number = 0;
    for (bool again = false; sigwait(&set_, &signal_number) == 0; again = true) {
      if (signal_number == SIGUSR1) return;
      source_.request_stop();
      if (finishing_ > 0 && !again) continue;
      if (again) _exit(kInterrupted);
      if (!out_.claim_end()) return;  // the command is ending by itself
      // Who has started local ranks tells it, once.
      _exit(end_with(out_, Error{Errc::interrupted, is_local_rank() ? "" : "interrupted"}));
    }
  }

  Output& out_;
  sigset_t set_, previous_;
  std::stop_source source_;
  std::atomic<int> finishing_{0};
  std::thread waiter_;
};

Status run_guarded(const CommandRun& run, CommandContext& context) {
  try {
    return run(context);
  } catch (const std::bad_alloc&) {
    return Error{Errc::limit, "out of memory"};
  } catch (const std::exception& e) {
    return Error{Errc::bug, std::string("unexpected exception: ") + e.what()};
  }
}

}  // namespace

std::span<const CommandDef> all_commands() { return kCommands; }

Status check_command(const std::string& name) {
  std::vector<std::string> known;
  for (const CommandDef& def : kCommands) known.emplace_back(def.name);
  if (std::find(known.begin(), known.end(), name) != known.end()) return {};
  return Error{Errc::usage, unknown_name("command", name, known)};
}

std::string examples_text(const CommandDef& def) {
  std::string text;
  for (const char* example : def.examples)
    if (example != nullptr) text += std::string(text.empty() ? "Examples:\n  " : "\n  ") + example;
  return text;
}

CommandLine::CommandLine(bool& as_json, const std::string& only)
    : app(std::make_unique<CLI::App>(
          "Gradloom: profiler and optimization workbench for neural-network training graphs")) {
  app->name("gradloom");
  app->formatter(std::make_shared<Usage>());
  app->set_version_flag("--version", [] { return "gradloom " + build_info().version; });
  app->require_subcommand(1);
  app->footer(
      "Begin with `gradloom open`, or with `gradloom inspect model.onnx`; `gradloom help COMMAND` has examples.\n\n"
      "Exit codes: " +
      std::string(kExitCodes));
  for (const CommandDef& def : kCommands) {
    CLI::App* sub = app->add_subcommand(def.name, def.summary)->group(def.group);
    if (!only.empty() && only != def.name) continue;
    // A later flag overrides an earlier one.
    sub->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    sub->add_flag("--json", as_json, "one JSON object (or one per line) on stdout");
    const CommandRun declared = def.declare(*sub);
    read_numbers(*sub);
    sub->footer(examples_text(def));
    sub->callback([this, declared] { run = declared; });
  }
}
CommandLine::~CommandLine() = default;

int run_command_line(int argc, const char* const* argv) {
  // Errors of parsing are JSON too, and come before flags are known.
  bool json = std::any_of(argv, argv + argc, [](const char* word) { return std::string(word) == "--json"; });
  Output out(json);
  const bool named = argc > 1 && argv[1][0] != '-';
  if (const Status known = named ? check_command(argv[1]) : Status(); !known) return exit_code(out, known);
  CommandLine line(json, named ? argv[1] : "");
  if (argc < 2) {
    out.document(line.app->help());
    return exit_code(out, Status());
  }
  try {
    line.app->parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) return exit_code(out, Error{Errc::usage, e.what()});
    std::ostringstream help;
    line.app->exit(e, help, help);
    if (json && dynamic_cast<const CLI::CallForVersion*>(&e) != nullptr)
      out.object(build_info_json());
    else
      out.document(help.str());
    return exit_code(out, Status());
  }
  out.set_json(json);
  std::optional<SignalStop> signals;
  try {
    signals.emplace(out);
  } catch (const std::system_error&) {
    return exit_code(out, Error{Errc::limit, "out of memory: the system starts no thread"});
  }
  CommandContext context{out, signals->token(), signals->finishing()};
  return exit_code(out, run_guarded(line.run, context));
}

}  // namespace gradloom
