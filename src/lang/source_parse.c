/* Does a source parse that failed when it ran? Runs in the command, on its loop. */
#include <string.h>

#include "base/util.h"
#include "lang/derive.h"
#include "lang/source.h"

#define PARSE_REFUSED 77

/* Only what the interpreter would refuse as a file as well: archives, byte code and (before Python
 * 3.12) text with a NUL in it run, and how deep it may be nested is another matter here. */
static const char python_parse[] =
    "import sys\n"
    "with open(sys.argv[1], 'rb') as file:\n"
    "    text = file.read()\n"
    "try:\n"
    "    compile(text, sys.argv[1], 'exec')\n"
    "except SyntaxError as e:\n"
    "    if text[:4] != b'PK\\3\\4' and text[2:4] != b'\\r\\n' and b'\\0' not in text \\\n"
    "            and 'too many' not in str(e):\n"
    "        sys.excepthook(type(e), e.with_traceback(None), None)\n"
    "        sys.exit(77)\n"
    "except (ValueError, RecursionError, MemoryError):\n"
    "    pass\n";

/* Words after the interpreter's own, before the source; program NULL: any interpreter. */
static const struct {
    const char *language, *program;
    int refused;
    const char *words[6];
} parsers[] = {
    {"python", NULL, PARSE_REFUSED, {"-I", "-S", "-W", "ignore", "-c", python_parse}},
    {"javascript", "node", 1, {"--check"}},
};

int lang_parse_use(struct lang_job *job, struct run_job *ret_run)
{
    const struct lang *lang = job->lang;
    size_t i = 0, n = 0;
    while (lang && i < ARRAY_SIZE(parsers) &&
           (!str_eq(lang->name, parsers[i].language) ||
            (parsers[i].program && !str_eq(lang->run[0], parsers[i].program))))
        i++;
    if (!lang || job->compiles || i == ARRAY_SIZE(parsers))
        return -1;
    const char **argv =
        arena_alloc(&job->arena, (ARRAY_SIZE(parsers[i].words) + 3) * sizeof(*argv));
    if (!argv)
        return -1;
    argv[n++] = lang->run[0];
    for (size_t k = 0; k < ARRAY_SIZE(parsers[i].words) && parsers[i].words[k]; k++)
        argv[n++] = parsers[i].words[k];
    argv[n++] = job->inside;
    argv[n] = NULL;
    lang_derive_check(&job->policy, &job->step_policy);
    ret_run->policy = &job->step_policy;
    ret_run->argv = (char *const *)argv;
    ret_run->options =
        (struct supervise_options){.sinks = {-1, -1}, .keep_output = true, .stdin_fd = -1};
    return parsers[i].refused;
}
