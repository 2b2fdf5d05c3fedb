/* SPDX-License-Identifier: Apache-2.0
 *
 * A workspace for one task: files in, a command nobody trusts in it, what it changed as a patch.
 * Build: make -C examples
 *
 *   ./task                                       a change by sed
 *   ./task python3 -c 'open("new", "w")'         anything else that is on the list
 *
 * The workspace is .sandbox/example/, its log logs/sandbox/example.jsonl. */
#include <stdio.h>

#include <cordon.h>

static int fail(const struct cordon_err *err)
{
    fprintf(stderr, "task: %s: %s\n", err->stage, err->message);
    if (err->hint[0])
        fprintf(stderr, "hint: %s\n", err->hint);
    return err->code;
}

int main(int argc, char **argv)
{
    char *usual[] = {"sed", "-i", "s/world/there/", "greeting.txt", NULL};
    const char *const allowed[] = {"sed", "sh", "python3", NULL};
    const struct cordon_task_file file = {"greeting.txt", "hello world\n", 12, 0};
    struct cordon_task_options options = {.size = sizeof(options), .allowed_binaries = allowed};
    struct cordon_task_action action = {.size = sizeof(action),
                                        .command = argc > 1 ? argv + 1 : usual};
    struct cordon_task_result *result;
    struct cordon_task *task;
    struct cordon *cordon;
    struct cordon_err err;

    if (cordon_open(NULL, &cordon, &err) < 0 ||
        cordon_task_prepare(&options, "example", &file, 1, &task, &err) < 0)
        return fail(&err);
    if (cordon_task_run(cordon, task, CORDON_TASK_ACTION, &action, &result, &err) < 0)
        return fail(&err);
    const char *kind, *path;
    for (size_t i = 0; (path = cordon_task_result_changed(result, i, &kind)); i++)
        printf("%s: %s\n", path, kind);
    fputs(cordon_task_result_diff(result, NULL), stdout);
    if (cordon_task_result_error(result))
        printf("because: %s\n", cordon_task_result_error(result));
    int status = cordon_task_result_exit_code(result);
    cordon_task_result_free(result);
    cordon_task_cleanup(task, &err);
    cordon_task_free(task);
    cordon_close(cordon);
    return status;
}
