// gradloom devices: what can run training here, and what it reaches.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/job.h"
#include "app/measure_device.h"
#include "app/ranks.h"
#include "app/roofline.h"
#include "engine/base/text.h"
#include "engine/device/device.h"
#include "profiler/environment.h"

namespace gradloom {
namespace {

struct DevicesOptions {
  bool measure = false;
  std::string device;
  std::int64_t ranks = 1, threads = 0;
};

void list_all_devices(const Output& out) {
  for (const DeviceInfo& d : list_devices()) {
    out.object({{"device", d.id},
                {"name", d.name},
                {"available", d.available},
                {"why_not", d.why_not},
                {"memory_bytes", d.memory_bytes},
                {"free_bytes", d.free_bytes},
                {"threads", d.threads},
                {"detail", d.detail}});
    if (d.available)
      out.text(d.id + "  " + d.name + ", " + (d.threads > 0 ? std::to_string(d.threads) + " threads, " : "") +
               bytes_text(static_cast<double>(d.memory_bytes)) + " (" +
               bytes_text(static_cast<double>(d.free_bytes)) + " free)" +
               (d.detail.empty() ? "" : ", " + d.detail));
    else
      out.text(d.id + "  not available: " + d.why_not);
  }
}

Json speeds_json(const DeviceInfo& device, const DeviceSpeeds& speeds) {
  Json memory = Json::array(), products = Json::array(), types = Json::array();
  for (const MemorySpeed& m : speeds.memory)
    memory.push_back({{"bytes", m.bytes}, {"bytes_per_second", m.bytes_per_ns * 1e9}});
  for (const ProductSpeed& p : speeds.products)
    products.push_back(
        {{"type", dtype_name(p.type)}, {"size", p.size}, {"flops_per_second", p.flops_per_ns * 1e9}});
  for (const TypeTime& t : speeds.types)
    types.push_back({{"op", t.op}, {"type", t.type}, {"size", t.size}, {"ns", t.ns}});
  return {{"device", device.id}, {"name", device.name},  {"memory_bytes", device.memory_bytes},
          {"memory", memory},    {"products", products}, {"launch_ns", speeds.launch_ns},
          {"types", types}};
}

Status measure_one(const DeviceInfo& device, CommandContext& context) {
  const DeviceSpeeds speeds =
      TRY(measure_device(device.id, context.stop, [&](const std::string& what, double fraction) {
        context.out.progress(device.id, fraction, what);
      }));
  context.out.progress_done();
  const Json found = speeds_json(device, speeds);
  TRY(remember_hardware(hardware_text_with(device), found.dump()));
  context.out.object(found);
  std::vector<std::vector<std::string>> rows;
  for (const MemorySpeed& m : speeds.memory)
    rows.push_back({"reads and writes " + bytes_text(static_cast<double>(m.bytes)),
                    bytes_text(m.bytes_per_ns * 1e9) + "/s"});
  for (const ProductSpeed& p : speeds.products)
    rows.push_back({std::string("product in ") + dtype_name(p.type) + ", " + std::to_string(p.size) + " wide",
                    count_text(p.flops_per_ns * 1e9, "FLOP/s")});
  rows.push_back({"the smallest kernel", duration_text(speeds.launch_ns)});
  context.out.text(device.id + "  " + device.name +
                   (device.threads > 0 ? ", " + plural_text(device.threads, "thread") : ""));
  context.out.text(table_text({"kernel", "at most"}, rows, {0}));
  return {};
}

Status measure_devices(const DevicesOptions& options, CommandContext& context) {
  bool any = false;
  for (const DeviceInfo& device : list_devices()) {
    // host-gpu is for tests: a processor that plays another one.
    if (options.device.empty() ? !device.available || device.id == "host-gpu" : device.id != options.device)
      continue;
    if (!device.available) return Error{Errc::device, device.id + " is not available: " + device.why_not};
    any = true;
    TRY(measure_one(device, context));
  }
  if (!any)
    return Error{Errc::usage,
                 "--device " + escaped(options.device) + ": no such device (gradloom devices lists them)"};
  return {};
}

Status measure_ranks(const DevicesOptions& options, CommandContext& context) {
  return work_on_ranks(options.ranks, context, [&](World& world) -> Status {
    const LinkSpeeds speeds = TRY(measure_exchanges(world));
    if (world.rank() != 0) return {};
    const std::string link = number_text(std::max(0.001, std::round(speeds.bytes_per_ns * 1000) / 1000)) +
                             "GB/s," + number_text(std::max(0.01, std::round(speeds.latency_ns / 10) / 100)) +
                             "us";
    Json means = Json::array();
    std::vector<std::vector<std::string>> rows;
    for (const ExchangeSpeed& mean : speeds.means) {
      Json told = {{"bytes", mean.bytes}};
      std::vector<std::string> row{bytes_text(static_cast<double>(mean.bytes))};
      for (std::size_t form = 0; form < mean.ns.size(); ++form) {
        told[form == 0 ? "ns" : kReduceForms[form] + std::string("_ns")] = mean.ns[form];
        row.push_back(duration_text(mean.ns[form]));
        row.push_back(bytes_text(static_cast<double>(mean.bytes) / mean.ns[form] * 1e9) + "/s");
      }
      means.push_back(std::move(told));
      rows.push_back(std::move(row));
    }
    context.out.object({{"ranks", world.size()},
                        {"link", link},
                        {"latency_ns", speeds.latency_ns},
                        {"bytes_per_second", speeds.bytes_per_ns * 1e9},
                        {"means", means}});
    context.out.text(plural_text(world.size(), "rank") + "  link " + link + " between rank 0 and rank " +
                     std::to_string(world.size() - 1) + " (plan --ranks takes it as --link or --local-link)");
    context.out.text(table_text(
        {"mean over all ranks of", "in their order", "rate", "as a tree", "rate", "as a ring", "rate"},
        rows));
    return {};
  });
}

}  // namespace

CommandRun declare_devices(CLI::App& app) {
  auto options = std::make_shared<DevicesOptions>();
  auto* const measure = app.add_flag(
      "--measure", options->measure,
      "measure what kernels reach: memory by how much they touch, products by type, and what others take in each "
      "type; some seconds. It is remembered as the roofs of this processor (show --roofline, plan --roofline), and "
      "what-if and advise tell another precision by it");
  app.add_option("--device", options->device, "measure this device alone (default: all but host-gpu)")
      ->needs(measure);
  app.add_option("--threads", options->threads,
                 "measure with so many threads (default: one for each processor)")
      ->check(CLI::Range(0, 4096))
      ->needs(measure);
  app.add_option("--ranks", options->ranks,
                 "measure what so many ranks reach with each other, instead of a device")
      ->check(CLI::Range(2, 4096))
      ->needs(measure);
  return [options](CommandContext& context) -> Status {
    TRY(apply_threads(options->threads));
    if (options->measure && (options->ranks > 1 || TRY(rank_place())))
      return measure_ranks(*options, context);
    if (options->measure) return measure_devices(*options, context);
    list_all_devices(context.out);
    return {};
  };
}

}  // namespace gradloom
