/* libFuzzer entry for bulk grading's files: any bytes as samples, tasks or problems give items that
 * can be graded, or say why not. The first byte chooses. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "grade/bulk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char problem[] =
    "{\"task_id\":\"H/0\",\"prompt\":\"def f(x):\\n\",\"entry_point\":\"f\",\"test\":\"t\"}\n";

static void check(bool ok)
{
    if (!ok)
        abort();
}

static int problems(struct bulk *b, const void *data, size_t size)
{
    static int fd = -1;
    struct cordon_err err = {0};
    char path[64];
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    check(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int r = bulk_read_problems(b, path, &err);
    check(r == 0 ? b->n_problems > 0 : err.code != 0 && err.message[0]);
    return r;
}

static void items(struct bulk *b, const void *data, size_t size)
{
    struct cordon_err err = {0};
    struct bulk_item item;
    size_t n = 0;
    b->items_name = "fuzz";
    b->items_file = data ? fmemopen((void *)data, size, "r") : NULL;
    while (bulk_next(b, &item, &err) == 1) {
        check(item.index == n++);
        if (!item.broken) {
            check(item.id && item.task.source && (item.task.tests || item.cases));
            check(strlen(item.task.source) == item.task.source_len);
            check(!item.task.tests || strlen(item.task.tests) == item.task.tests_len);
        }
        bulk_item_done(&item);
    }
    if (b->items_file)
        fclose(b->items_file);
    free(b->line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct bulk b = {.format = data[0] % 3, .input = {.no_discovery = true}};
    bool is_problems = data[0] & 64 && b.format != BULK_TASKS;
    if (is_problems) {
        if (problems(&b, data + 1, size - 1) == 0)
            items(&b, NULL, 0);
    } else {
        if (b.format != BULK_TASKS) {
            b.format = BULK_HUMANEVAL;
            check(problems(&b, problem, sizeof(problem) - 1) == 0);
        }
        items(&b, data + 1, size - 1);
    }
    arena_done(&b.arena);
    return 0;
}
