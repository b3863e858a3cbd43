// The reference of session files as Markdown (docs/sessions.md): schema.sql's comments, tables, columns and
// views. Tables are read from its text, which is laid out for that: a comment before each CREATE, and at a
// column's end what it means. SQLite tells the columns of views.
#pragma once

#include <string>

#include "engine/base/result.h"

namespace gradloom {

Result<std::string> session_page();

}  // namespace gradloom
