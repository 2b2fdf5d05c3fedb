/* Runs a fuzzer's entry without libFuzzer, for a moment: over the files given, and over changed
 * copies of them. It does not search as a fuzzer does; it keeps the fuzzers true to the code they
 * call between two runs of `make fuzz`. Repeatable: the numbers are always the same.
 *
 * usage: replay_NAME [FILE | FOLDER]... */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/util.h"

#define MOST_SEEDS 64
#define MOST_BYTES 4096
#define MOST_NS UINT64_C(400000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct seed {
    uint8_t bytes[MOST_BYTES];
    size_t size;
} seeds[MOST_SEEDS];
static size_t n_seeds = 1; /* the first one is empty */

static uint32_t any(uint32_t below)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

static void take_file(const char *path)
{
    FILE *f = fopen(path, "re");
    if (!f || n_seeds == MOST_SEEDS) {
        if (f)
            fclose(f);
        return;
    }
    struct seed *s = &seeds[n_seeds++];
    s->size = fread(s->bytes, 1, sizeof(s->bytes), f);
    fclose(f);
}

static void take(const char *path)
{
    char inside[PATH_MAX];
    struct dirent **names;
    int n = scandir(path, &names, NULL, alphasort);
    if (n < 0) {
        take_file(path);
        return;
    }
    for (int i = 0; i < n; i++) {
        struct stat st;
        if (names[i]->d_name[0] != '.' &&
            str_join(inside, sizeof(inside), path, "/", names[i]->d_name) &&
            stat(inside, &st) == 0 && S_ISREG(st.st_mode))
            take_file(inside);
        free(names[i]);
    }
    free(names);
}

static void change(struct seed *s)
{
    switch (any(4)) {
    case 0:
        if (s->size > 0)
            s->bytes[any((uint32_t)s->size)] ^= (uint8_t)(1u << any(8));
        break;
    case 1:
        if (s->size > 0)
            s->bytes[any((uint32_t)s->size)] = (uint8_t)any(256);
        break;
    case 2: s->size = s->size ? any((uint32_t)s->size + 1) : 0; break;
    default:
        for (uint32_t more = 1 + any(16); more > 0 && s->size < MOST_BYTES; more--)
            s->bytes[s->size++] = (uint8_t)any(256);
    }
}

static void run(const struct seed *s)
{
    /* of its own size: what reads behind the end is seen by sanitizers and valgrind */
    uint8_t *copy = malloc(s->size ? s->size : 1);
    if (!copy)
        abort();
    memcpy(copy, s->bytes, s->size);
    LLVMFuzzerTestOneInput(copy, s->size);
    free(copy);
}

int main(int argc, char **argv)
{
    static struct seed now;
    uint64_t end = clock_ns() + MOST_NS;
    unsigned runs = 0;
    for (int i = 1; i < argc; i++)
        take(argv[i]);
    for (size_t i = 0; i < n_seeds; i++)
        run(&seeds[i]);
    for (; clock_ns() < end; runs++) {
        now = seeds[any((uint32_t)n_seeds)];
        for (uint32_t n = 1 + any(8); n > 0; n--)
            change(&now);
        run(&now);
    }
    printf("%zu seeds, %u changed copies\n1 passed, 0 failed, 0 skipped\n", n_seeds - 1, runs);
    return 0;
}
