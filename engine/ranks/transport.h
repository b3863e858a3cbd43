// The C interface of a plugin that carries bytes between ranks: libgradloom_mpi.so over Open MPI, libgradloom_tcp.so over sockets.
// What is carried, in which order it is added and what a silence means is above it (world.h).
//
// Bytes between two ranks arrive in the order in which they were sent, per tag. Calls return 0, or a code that message()
// explains. One thread calls at a time. `self`: what join() has made.
#pragma once

#include <cstdint>

extern "C" {

// What a rank knows of the others before it meets them; from `address` on for plugins that no launcher connects.
struct GradloomMeeting {
  int rank, world;
  const char* address;         // where rank 0 is: a name or a number; "": nobody has said
  int port;                    // where it listens until all are there
  int one_machine;             // all ranks are known to be of one machine
  const char* world_id;        // at most 63 bytes, the same on all ranks of this world alone
  std::int64_t limit_ns;       // after which those that have not come are missed
  int (*stopped)(void* user);  // not 0: the meeting is to end
  void* user;
};

struct GradloomTransport {
  std::uint32_t version;  // GRADLOOM_TRANSPORT_VERSION
  const char* name;       // "Open MPI"
  // Once, before all else; *self is there after an error too, for message() and close().
  int (*join)(const GradloomMeeting* meeting, void** self, int* rank, int* world);
  // Begin to carry, at most 2^31 - 1 bytes; they stay where they are until
  // test() says that it is done. *request: from 0.
  int (*send)(void* self, const void* bytes, std::int64_t count, int to, int tag, int* request);
  int (*receive)(void* self, void* bytes, std::int64_t count, int from, int tag, int* request);
  // Whether it is done; then the request is no more, as after GRADLOOM_TRANSPORT_GONE: its peer has ended, and what has not come by now
  // never does.
  int (*test)(void* self, int request, int* done);
  // Bytes that have come and gone, as far as is known: while it grows, nobody is silent.
  std::int64_t (*carried)(void* self);
  // What is under way with this tag is given up: its requests are no more, its memory is the caller's again, and what comes
  // with it is thrown away from now on.
  void (*drop)(void* self, int tag);
  // Once this rank has nothing under way; waits until the others do it, too, where that is needed.
  int (*leave)(void* self);
  void (*close)(void* self);  // in any state; self is no more
  const char* (*message)(void* self, int code);
};

typedef const GradloomTransport* (*GradloomTransportFn)();
}

#define GRADLOOM_TRANSPORT_VERSION 2u
#define GRADLOOM_TRANSPORT_ENTRY "gradloom_transport"
#define GRADLOOM_TRANSPORT_GONE (-1)
#define GRADLOOM_TRANSPORT_STOPPED (-2)  // of join(): stopped() said so
