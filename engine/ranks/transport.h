// The C interface of a plugin that carries bytes between ranks: libgradloom_mpi.so over Open MPI. What is carried, in which
// order it is added and what a silence means is above it (world.h).
//
// Bytes between two ranks arrive in the order in which they were sent, per tag. Calls return 0, or a code that message()
// explains. One thread calls at a time.
#pragma once

#include <cstdint>

extern "C" {

struct GradloomTransport {
  std::uint32_t version;  // GRADLOOM_TRANSPORT_VERSION
  // Once, before all else.
  int (*join)(int* rank, int* world);
  // Begin to carry, at most 2^31 - 1 bytes; they stay where they are until
  // test() says that it is done. *request: from 0.
  int (*send)(const void* bytes, std::int64_t count, int to, int tag, int* request);
  int (*receive)(void* bytes, std::int64_t count, int from, int tag, int* request);
  // Whether it is done; then the request is no more.
  int (*test)(int request, int* done);
  int (*leave)();  // once all ranks have nothing under way; waits for all of them to call it
  const char* (*message)(int code);
};

typedef const GradloomTransport* (*GradloomTransportFn)();
}

#define GRADLOOM_TRANSPORT_VERSION 1u
#define GRADLOOM_TRANSPORT_ENTRY "gradloom_transport"
