/* Given to clang-tidy in front of every file but those that define these functions: the analyser
 * sees one file at a time and cannot know that they always return -1, on which every "0 means that
 * it is set" rests. */
#include "base/err.h"
#include "plan/seccomp_json.h"
#include "policy/toml_internal.h"

#define err_set(...) (err_set(__VA_ARGS__), -1)
#define err_prefix(...) (err_prefix(__VA_ARGS__), -1)
#define err_hint(...) (err_hint(__VA_ARGS__), -1)
#define err_nomem(...) (err_nomem(__VA_ARGS__), -1)
#define seccomp_json_fail(...) (seccomp_json_fail(__VA_ARGS__), -1)
#define toml_fail(...) (toml_fail(__VA_ARGS__), -1)
