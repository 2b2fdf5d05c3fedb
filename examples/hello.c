/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a program nobody trusts and prints what became of it. Build: make -C examples
 *
 *   ./hello                      a greeting from inside
 *   ./hello sh -c 'rm -rf /usr'  anything else */
#include <stdio.h>

#include <cordon.h>

static int fail(const struct cordon_err *err)
{
    fprintf(stderr, "hello: %s: %s\n", err->stage, err->message);
    if (err->hint[0])
        fprintf(stderr, "hint: %s\n", err->hint);
    return err->code;
}

static void show(const struct cordon_result *result)
{
    size_t len;
    const char *out = cordon_result_output(result, CORDON_STDOUT, &len);
    fwrite(out, 1, len, stdout);
    out = cordon_result_output(result, CORDON_STDERR, &len);
    fwrite(out, 1, len, stderr);
    printf("verdict %s, exit code %d, %.1f ms, %.1f MiB\n",
           cordon_verdict_name(cordon_result_verdict(result)), cordon_result_exit_code(result),
           (double)cordon_result_wall_ns(result) / 1e6,
           (double)cordon_result_peak_memory_bytes(result) / (1024 * 1024));
    if (cordon_result_error(result))
        printf("because: %s\n", cordon_result_error(result));
}

int main(int argc, char **argv)
{
    char *greeting[] = {"sh", "-c", "echo \"hello from inside, $(cat name)\"; id -un", NULL};
    struct cordon_err err;
    struct cordon *cordon;
    if (cordon_open(NULL, &cordon, &err) < 0)
        return fail(&err);

    struct cordon_request *request = cordon_request_new();
    struct cordon_result *result = NULL;
    int status = CORDON_ERR_INTERNAL;
    if (!request)
        fprintf(stderr, "hello: out of memory\n");
    else if (cordon_request_set(request, "time_limit", "5s", &err) < 0 ||
             cordon_request_set(request, "memory_limit", "64M", &err) < 0 ||
             cordon_request_add_file(request, "name", "stranger", 8, &err) < 0 ||
             cordon_request_set_argv(request, argc > 1 ? argv + 1 : greeting, &err) < 0 ||
             cordon_run(cordon, request, &result, &err) < 0)
        status = fail(&err); /* Cordon failed: nothing is said about the program */
    else
        show(result), status = cordon_result_exit_code(result);

    cordon_result_free(result);
    cordon_request_free(request);
    cordon_close(cordon);
    return status;
}
