// How near the memory planner comes to the bound, and how long it takes (processor time, one thread). Three tables:
//   models      every network of tests/models and tests/modules that trains: arena over lower bound
//   synthetic   thousands of requests: a training step's, in which what is made late is freed first, and random ones
//   instances   files of requests, where folders are given: lines `id,lower,upper,size` with half-open lifetimes, and
//               the arena that holds them as the last number of the file's name (A.1048576.csv). MiniMalloc's
//               are github.com/google/minimalloc, benchmarks/challenging (Moffitt, ASPLOS 2023).
//   planner [--work MILLIONS] [FOLDER..]
// --work: most that a search may do for an instance (about two nanoseconds each).
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "app/job.h"
#include "engine/base/text.h"
#include "passes/packing.h"
#include "passes/planners.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Row {
  std::string name;
  std::size_t requests = 0;
  double ratio = 0, seconds = 0;
};

Row planned(const std::string& name, std::vector<Request> requests) {
  for (Request& r : requests) r.bytes = aligned_bytes(r.bytes);
  std::vector<std::int64_t> offsets;
  const double start = processor_seconds();
  const std::int64_t arena = find_planner("best-fit")->plan(requests, offsets);
  return {name, requests.size(),
          static_cast<double>(arena) / static_cast<double>(lower_bound_bytes(requests)),
          processor_seconds() - start};
}

void print(const Row& row) {
  std::printf("%-44s %7zu requests  %.4f of the bound  %8.2f ms\n", row.name.c_str(), row.requests, row.ratio,
              row.seconds * 1e3);
  std::fflush(stdout);
}

std::vector<Request> requests_of(const Plan& plan) {
  std::vector<Request> requests;
  for (const Buffer& b : plan.buffers)
    if (b.place == Place::arena) requests.push_back({b.bytes, b.first_step, b.last_step});
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const auto step = static_cast<std::int32_t>(i);
    if (plan.steps[i].workspace_bytes > 0) requests.push_back({plan.steps[i].workspace_bytes, step, step});
  }
  return requests;
}

void models(const std::string& precision, const std::string& passes) {
  std::vector<Row> rows;
  for (const char* root : {"tests/models", "tests/modules"})
    for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
      Recipe recipe;
      recipe.model = (entry.path() / "model.onnx").string();
      if (!fs::exists(recipe.model)) continue;
      recipe.dims = {{"batch", 8}};
      set_pipeline(recipe, *parse_pipeline(passes));
      set_precision(recipe, precision);
      auto prepared = prepare(recipe);
      if (!prepared) {
        recipe.dims.clear();
        prepared = prepare(recipe);
      }
      if (prepared) rows.push_back(planned(entry.path().filename(), requests_of((*prepared)->compiled.plan)));
    }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.ratio > b.ratio; });
  double seconds = 0, slowest = 0;
  std::size_t above = 0;
  for (const Row& row : rows) {
    seconds += row.seconds;
    slowest = std::max(slowest, row.seconds);
    above += row.ratio > 1.01 ? 1 : 0;
  }
  std::printf(
      "%s, passes %s: %zu networks, %zu above 1.01, worst %.4f (%s), %.1f ms in all, %.1f ms the slowest\n",
      precision.c_str(), passes.c_str(), rows.size(), above, rows.front().ratio, rows.front().name.c_str(),
      seconds * 1e3, slowest * 1e3);
  std::fflush(stdout);
}

// Activations live from their forward step to the mirrored backward step, temporaries for a few.
std::vector<Request> training(int count) {
  std::mt19937 random(7);
  std::vector<Request> requests;
  const int layers = count / 3;
  constexpr int kSizes[] = {1, 64, 256, 1024, 3072, 4096};
  const auto bytes = [&] { return std::int64_t{64} * kSizes[random() % std::size(kSizes)]; };
  const auto steps = [&](unsigned most) { return static_cast<int>(random() % most); };
  for (int layer = 0; layer < layers; ++layer) {
    requests.push_back({bytes(), layer, 2 * layers - 1 - layer});
    requests.push_back({bytes(), layer, layer + 1 + steps(5)});
    requests.push_back({bytes(), 2 * layers - 2 - layer, 2 * layers - 1 - layer + steps(4)});
  }
  return requests;
}

std::vector<Request> random(int count) {
  std::mt19937 random(4);
  std::vector<Request> requests;
  const int steps = count * 2 / 5;
  for (int i = 0; i < count; ++i) {
    const int first = static_cast<int>(random() % static_cast<unsigned>(steps));
    const int length = static_cast<int>(random() % static_cast<unsigned>(steps / 3));
    requests.push_back(
        {static_cast<std::int64_t>(random() % (1 << 20)), first, std::min(steps - 1, first + length)});
  }
  return requests;
}

bool read_instance(const fs::path& file, std::vector<Request>& requests, std::int64_t& capacity) {
  const std::string stem = file.stem().string();
  capacity = std::atoll(stem.c_str() + stem.rfind('.') + 1);
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  if (capacity <= 0 || line.rfind("id,lower,upper,size", 0) != 0) return false;
  while (std::getline(in, line)) {
    long long lower = 0, upper = 0, size = 0;
    if (std::sscanf(line.c_str(), "%*[^,],%lld,%lld,%lld", &lower, &upper, &size) != 3) return false;
    requests.push_back({size, static_cast<std::int32_t>(lower), static_cast<std::int32_t>(upper - 1)});
  }
  return true;
}

bool instance(const fs::path& file, std::int64_t most_work) {
  std::vector<Request> requests;
  std::int64_t capacity = 0;
  if (!read_instance(file, requests, capacity)) {
    std::fprintf(stderr, "%s: not an instance\n", file.c_str());
    return false;
  }
  print(planned(file.filename().string() + ", as the planner does", requests));
  struct Search {
    const char* name;
    decltype(&pack_exactly) pack;
  };
  for (const Search& search : {Search{"ejection", pack_by_ejection}, Search{"exact", pack_exactly}}) {
    std::vector<std::int64_t> offsets;
    std::int64_t work = most_work;
    const double start = processor_seconds();
    const Packed answer = search.pack(requests, capacity, work, offsets);
    std::printf("    %-10s %s in %lld, %8.2f ms\n", search.name,
                answer == Packed::found        ? "fits"
                : answer == Packed::impossible ? "cannot fit"
                                               : "not found",
                static_cast<long long>(capacity), (processor_seconds() - start) * 1e3);
    std::fflush(stdout);
  }
  return true;
}

int run(const std::vector<std::string>& folders, std::int64_t most_work) {
  for (const char* precision : {"f32", "bf16"})
    for (const char* passes : {"default", "none"}) models(precision, passes);
  for (const int count : {1000, 5000, 10000, 20000}) print(planned("training step", training(count)));
  for (const int count : {1000, 5000, 10000, 20000}) print(planned("random lifetimes", random(count)));
  for (const std::string& folder : folders) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".csv") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files)
      if (!instance(file, most_work)) return 3;
  }
  return 0;
}

}  // namespace
}  // namespace gradloom

int main(int argc, char** argv) {
  std::vector<std::string> folders;
  std::int64_t work = 2'000'000'000;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--work") == 0 && i + 1 < argc)
      work = std::atoll(argv[++i]) * 1'000'000;
    else
      folders.emplace_back(argv[i]);
  }
  return gradloom::run(folders, work);
}
