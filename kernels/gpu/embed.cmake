# cmake -DROOT=<source root> -DHEADER=kernels/gpu/program_prelude.h -DOUTPUT=prelude.cpp -P embed.cmake
# Writes HEADER, with every header of ours that it includes in place of its #include line, as the string kEmbeddedPrelude: run-time
# compilers get one text and no include path. A header that is included twice comes twice, within a guard.
set(text "\n#include \"${HEADER}\"\n")
set(depends "")
while(text MATCHES "\n#include \"(kernels/[^\"\n]+)\"[^\n]*\n")
  set(line "${CMAKE_MATCH_0}")
  set(name "${CMAKE_MATCH_1}")
  file(READ "${ROOT}/${name}" body)
  string(REPLACE "#pragma once\n" "" body "${body}")
  string(MAKE_C_IDENTIFIER "GRADLOOM_EMBEDDED_${name}" guard)
  string(REPLACE "${line}" "\n#ifndef ${guard}\n#define ${guard}\n${body}\n#endif\n" text "${text}")
  string(APPEND depends " ${ROOT}/${name}")
endwhile()
# Comment lines and empty lines are left out: less to compile, and a changed comment changes no compiled program's hash.
string(REGEX REPLACE "\n *//[^\n]*" "" text "${text}")
string(REGEX REPLACE "\n\n+" "\n" text "${text}")
file(WRITE "${OUTPUT}" "namespace gradloom::kernels::gpu {\nextern const char* const kEmbeddedPrelude;\nconst char* const kEmbeddedPrelude = R\"prelude(${text})prelude\";\n}\n")
file(WRITE "${OUTPUT}.d" "${OUTPUT}:${depends}\n")
