// Bytes between ranks by Open MPI's point-to-point calls (MPI 3.1, chapter 3).
#include <mpi.h>

#include <array>
#include <climits>
#include <vector>

#include "engine/ranks/transport.h"

namespace {

struct Requests {
  std::vector<MPI_Request> all;
  std::vector<int> unused;
  int take(MPI_Request request) {
    if (unused.empty()) {
      all.push_back(request);
      return static_cast<int>(all.size()) - 1;
    }
    const int place = unused.back();
    unused.pop_back();
    all[static_cast<std::size_t>(place)] = request;
    return place;
  }
} requests;

int join(int* rank, int* world) {
  int level = 0;
  if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level)) return code;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (level < MPI_THREAD_SERIALIZED) return MPI_ERR_OTHER;
  if (const int code = MPI_Comm_rank(MPI_COMM_WORLD, rank)) return code;
  return MPI_Comm_size(MPI_COMM_WORLD, world);
}

int send(const void* bytes, std::int64_t count, int to, int tag, int* request) {
  if (count > INT_MAX) return MPI_ERR_COUNT;
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = MPI_Isend(bytes, static_cast<int>(count), MPI_BYTE, to, tag, MPI_COMM_WORLD, &made);
  if (code == MPI_SUCCESS) *request = requests.take(made);
  return code;
}

int receive(void* bytes, std::int64_t count, int from, int tag, int* request) {
  if (count > INT_MAX) return MPI_ERR_COUNT;
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(bytes, static_cast<int>(count), MPI_BYTE, from, tag, MPI_COMM_WORLD, &made);
  if (code == MPI_SUCCESS) *request = requests.take(made);
  return code;
}

int test(int request, int* done) {
  MPI_Status status;
  const int code = MPI_Test(&requests.all[static_cast<std::size_t>(request)], done, &status);
  if (code == MPI_SUCCESS && *done != 0) requests.unused.push_back(request);
  return code;
}

int leave() { return MPI_Finalize(); }

const char* message(int code) {
  static std::array<char, MPI_MAX_ERROR_STRING> text;
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return "unknown error of MPI";
  return text.data();
}

constexpr GradloomTransport kTransport{GRADLOOM_TRANSPORT_VERSION, join, send, receive, test, leave, message};

}  // namespace

extern "C" __attribute__((visibility("default"))) const GradloomTransport* gradloom_transport() {
  return &kTransport;
}
