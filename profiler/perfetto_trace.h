// Perfetto's own format: a stream of TracePacket messages (protos/perfetto/trace/ of its sources; the fields that are written stand in
// perfetto_trace.cpp). It holds what the Chrome trace holds, with exact nanoseconds and each text once.
//
// Times are nanoseconds since the first event, on Perfetto's default clock. A process's lanes, and the arena's bytes as a counter, are tracks below the
// process's own, in the order of their numbers. A slice is a packet that begins it, with its arguments as debug annotations, and one that
// ends it; those of a lane are written in the order of time, and one that would end behind the slice that it began in ends with it. Arrows are flows: their
// id is among the flow_ids of the slice they leave and the terminating_flow_ids of the one they lead to.
#pragma once

#include "profiler/trace_events.h"

namespace gradloom {

Status write_perfetto_trace(const TraceDocument& document, const TraceSink& sink);

}  // namespace gradloom
