/* Programs of a judge made ready once. Runs in the command, on its loop. */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "grade/judge_internal.h"
#include "lang/load.h"

static char *const helper_args[] = {(char *)JUDGE_FILE_INPUT, (char *)JUDGE_FILE_OUTPUT,
                                    (char *)JUDGE_FILE_ANSWER, NULL};

static void program_over(struct run_job *run)
{
    ((struct judge_program *)run->data)->over = true;
}

/* An executable needs no language: it is copied in as it is. */
static int program_is_binary(const char *path, bool *ret, struct cordon_err *err)
{
    char head[4];
    size_t len = 0;
    if (lang_load_head(path, head, sizeof(head), &len, err) < 0)
        return -1;
    *ret = len == sizeof(head) && memcmp(head, "\177ELF", sizeof(head)) == 0;
    return 0;
}

static void program_binary(struct judge_program *p, const char *path, const char *helper)
{
    const char *name = helper ? helper : "submission";
    size_t n = 0;
    p->file = (struct plan_file){.name = name, .source = path};
    p->argv[n++] = (char *)(helper ? str_eq(helper, "checker") ? "./checker" : "./interactor"
                                   : "./submission");
    for (size_t i = 0; helper && helper_args[i]; i++)
        p->argv[n++] = helper_args[i];
    p->ready.argv = p->argv;
    p->ready.files = &p->file;
    p->ready.n_files = 1;
}

/* Rules about the submission's own program and its folder are not for the grader's programs. */
static const struct policy *helper_base(struct judge *judge)
{
    static const enum field_id none[] = {FIELD_WORKSPACE,       FIELD_KEEP,
                                         FIELD_OUTPUT,          FIELD_ALLOWED_BINARIES,
                                         FIELD_ALLOWED_IMPORTS, FIELD_BLOCKED_IMPORTS};
    struct policy *p = &judge->state->helper_policy;
    *p = *judge->policy;
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        p->values[none[i]] = (struct policy_value){0};
    return p;
}

int judge_program_start(struct judge *judge, struct judge_program *p, const char *path,
                        const char *helper, struct cordon_err *err)
{
    bool binary = false;
    p->ready.loop = judge->loop;
    p->ready.host = judge->host;
    p->ready.vars = judge->vars;
    p->ready.policy = helper ? helper_base(judge) : judge->policy;
    p->ready.on_done = program_over;
    p->ready.data = p;
    p->ready.result.verdict = VERDICT_OK;
    p->started = p->over = true;
    if (!helper && judge->command) {
        p->ready.argv = judge->command;
        return 0;
    }
    bool named = !helper && judge->language;
    if (path && !named && program_is_binary(path, &binary, err) < 0) {
        if (helper)
            err->hint[0] = '\0'; /* which is for submissions: no helper is a command */
        return -1;
    }
    if (binary) {
        program_binary(p, path, helper);
        return 0;
    }
    p->source = (struct lang_source){.language = helper ? NULL : judge->language,
                                     .path = path,
                                     .text = path ? NULL : judge->text,
                                     .len = path ? 0 : judge->text_len,
                                     .args = helper ? helper_args : NULL,
                                     .vars = judge->vars};
    p->over = false;
    p->lang.prepare_only = true;
    return lang_start(&p->lang, &p->source, &p->ready, err);
}

void judge_program_use(const struct judge_program *p, struct run_job *ret)
{
    *ret = (struct run_job){.loop = p->ready.loop,
                            .host = p->ready.host,
                            .vars = p->ready.vars,
                            .policy = p->ready.policy,
                            .argv = p->ready.argv,
                            .files = p->ready.files,
                            .n_files = p->ready.n_files,
                            .stage = p->ready.stage};
}

void judge_program_done(struct judge_program *p)
{
    if (!p->started)
        return;
    run_done(&p->ready);
    lang_done(&p->lang);
}
