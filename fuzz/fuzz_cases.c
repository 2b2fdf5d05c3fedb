/* libFuzzer entry for the judge's cases: any bytes, as a JSON document or as lines, must give a
 * list of cases that can be run, or one honest error. The first byte chooses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "grade/cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void check_row(const struct cases_row *row)
{
    check(row->name && row->where && isfinite(row->points) && row->points >= 0);
    check(!row->input.path || !row->input.data);
    check(!row->expected.path || !row->expected.data);
    check(row->has_expected || (!row->expected.path && !row->expected.data));
    check(!row->time.written || row->time.num > 0);
    check(!row->memory.written || row->memory.num > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cases cases = {0};
    struct cordon_err err = {0};
    if (size == 0)
        return 0;
    int r = cases_from_json(&cases, "f", "/d", (const char *)data + 1, size - 1, data[0] & 1, &err);
    check(r == 0 ? err.code == 0 : err.code != 0 && err.message[0]);
    for (size_t i = 0; r == 0 && i < cases.n; i++)
        check_row(&cases.rows[i]);
    for (size_t i = 0; r == 0 && i < cases.n_groups; i++)
        check(cases.groups[i].name && cases.groups[i].points >= -1);
    if (r == 0 && cases_check(&cases, data[0] & 2, &err) == 0)
        check(cases.n > 0);
    cases_done(&cases);
    return 0;
}
