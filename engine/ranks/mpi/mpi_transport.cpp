// Bytes between ranks by Open MPI's point-to-point calls (MPI 3.1, chapter 3).
#include <mpi.h>

#include <array>
#include <climits>
#include <vector>

#include "engine/ranks/transport.h"

namespace {

constexpr int kNoTag = -1;

struct Requests {
  struct One {
    MPI_Request request = MPI_REQUEST_NULL;
    int received_tag = kNoTag;  // of receives
  };
  std::vector<One> all;
  std::vector<int> unused;
  int take(MPI_Request request, int received_tag) {
    if (unused.empty()) {
      all.push_back({request, received_tag});
      return static_cast<int>(all.size()) - 1;
    }
    const int place = unused.back();
    unused.pop_back();
    all[static_cast<std::size_t>(place)] = {request, received_tag};
    return place;
  }
} requests;

int join(const GradloomMeeting*, void** self, int* rank, int* world) {
  *self = &requests;
  int level = 0;
  if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level)) return code;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (level < MPI_THREAD_SERIALIZED) return MPI_ERR_OTHER;
  if (const int code = MPI_Comm_rank(MPI_COMM_WORLD, rank)) return code;
  return MPI_Comm_size(MPI_COMM_WORLD, world);
}

int send(void*, const void* bytes, std::int64_t count, int to, int tag, int* request) {
  if (count > INT_MAX) return MPI_ERR_COUNT;
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = MPI_Isend(bytes, static_cast<int>(count), MPI_BYTE, to, tag, MPI_COMM_WORLD, &made);
  if (code == MPI_SUCCESS) *request = requests.take(made, kNoTag);
  return code;
}

int receive(void*, void* bytes, std::int64_t count, int from, int tag, int* request) {
  if (count > INT_MAX) return MPI_ERR_COUNT;
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(bytes, static_cast<int>(count), MPI_BYTE, from, tag, MPI_COMM_WORLD, &made);
  if (code == MPI_SUCCESS) *request = requests.take(made, tag);
  return code;
}

int test(void*, int request, int* done) {
  MPI_Status status;
  const int code = MPI_Test(&requests.all[static_cast<std::size_t>(request)].request, done, &status);
  if (code == MPI_SUCCESS && *done != 0) requests.unused.push_back(request);
  return code;
}

// MPI tells nothing of what is under way.
std::int64_t carried(void*) { return 0; }

// MPI keeps what nobody receives. What was sent is not taken back: Open MPI has copied what is short, and what is long lies in
// memory that lives as long as the training.
void drop(void*, int tag) {
  for (std::size_t place = 0; place < requests.all.size(); ++place) {
    Requests::One& one = requests.all[place];
    if (one.received_tag != tag || one.request == MPI_REQUEST_NULL) continue;
    if (MPI_Cancel(&one.request) != MPI_SUCCESS || MPI_Request_free(&one.request) != MPI_SUCCESS) continue;
    requests.unused.push_back(static_cast<int>(place));
  }
}

int leave(void*) { return MPI_Finalize(); }

void close(void*) {}  // MPI lives as long as the process

const char* message(void*, int code) {
  static std::array<char, MPI_MAX_ERROR_STRING> text;
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return "unknown error of MPI";
  return text.data();
}

constexpr GradloomTransport kTransport{
    GRADLOOM_TRANSPORT_VERSION, "Open MPI", join, send, receive, test, carried, drop, leave, close, message};

}  // namespace

extern "C" __attribute__((visibility("default"))) const GradloomTransport* gradloom_transport() {
  return &kTransport;
}
