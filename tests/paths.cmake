include_guard(GLOBAL)
# Where this build's programs and this tree lie, for the few tests that ask: the others compile to the same bytes in every clone.
set(GRADLOOM_PATHS_FOLDER ${CMAKE_BINARY_DIR}/generated)
set(paths "#pragma once
#define GRADLOOM_SOURCE_DIR \"${CMAKE_SOURCE_DIR}\"
#define GRADLOOM_COMMAND \"$<TARGET_FILE:gradloom>\"
#define GRADLOOM_CUDA_PLUGIN \"${CMAKE_BINARY_DIR}/libgradloom_cuda.so\"
#define GRADLOOM_HIP_PLUGIN \"${CMAKE_BINARY_DIR}/libgradloom_hip.so\"
#define GRADLOOM_FAKE_PLUGINS \"${CMAKE_BINARY_DIR}/tests/fake_plugins\"
#define GRADLOOM_TEST_PROTOS \"${CMAKE_BINARY_DIR}/tests/protos.bin\"
#define GRADLOOM_FAKE_DRIVER \"${CMAKE_BINARY_DIR}/tests/libfake_driver.so\"
")
if(GRADLOOM_HOST_GPU)
  string(APPEND paths "#define GRADLOOM_PLUGIN_FOLDER \"${CMAKE_BINARY_DIR}\"\n")
endif()
file(GENERATE OUTPUT ${GRADLOOM_PATHS_FOLDER}/tests/paths.h CONTENT "${paths}")
