/* The doctor's verdict over finished items. Pure; runs in the command's own process. */
#include "host/doctor.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"

const char *host_state_name(enum host_state state)
{
    switch (state) {
    case HOST_WORKS: return "works";
    case HOST_BLOCKED: return "blocked";
    case HOST_MISSING: return "missing";
    case HOST_TIMED_OUT: return "timed out";
    }
    return "unknown";
}

const char *host_need_name(enum host_need need)
{
    switch (need) {
    case HOST_NEED_FULL: return "full tier";
    case HOST_NEED_ANY: return "every tier";
    case HOST_NEED_LANDLOCK: return "landlock tier";
    case HOST_NEED_LIMITS: return "limits exact";
    case HOST_NEED_NETWORK: return "network allowlist";
    case HOST_NEED_OVERLAY: return "overlay";
    case HOST_NEED_EXTRA: return "extras";
    case HOST_NEED_COUNT: break;
    }
    return "unknown";
}

const char *host_tier_name(enum host_tier tier)
{
    switch (tier) {
    case HOST_TIER_NONE: return "none";
    case HOST_TIER_LANDLOCK: return "landlock";
    case HOST_TIER_FULL: return "full";
    }
    return "unknown";
}

/* The first required item of a need that does not work. */
static const struct host_item *blocker(const struct host_report *r, enum host_need need)
{
    for (size_t i = 0; i < r->n_items; i++) {
        const struct host_item *item = &r->items[i];
        if (item->need == need && item->required && item->state != HOST_WORKS)
            return item;
    }
    return NULL;
}

static void add_lost(struct host_report *r, const char *what)
{
    if (what && r->n_lost < HOST_LOST_MAX)
        r->lost[r->n_lost++] = what;
}

static void limits_words(const struct host_report *r, char *ret, size_t size)
{
    const struct host_cgroups *c = &r->host.cgroups;
    const struct host_item *item = blocker(r, HOST_NEED_LIMITS);

    if (r->limits_exact)
        snprintf(ret, size, "limits exact (cgroup %s)", c->kind == HOST_CGROUP_V1 ? "v1" : "v2");
    else
        snprintf(ret, size, "limits by rlimits and sampling (%s)",
                 item && item->detail[0] ? item->detail : "no cgroups");
}

void host_doctor_judge(struct host_report *r)
{
    const struct host_item *any = blocker(r, HOST_NEED_ANY);
    const struct host_item *full = blocker(r, HOST_NEED_FULL);
    const struct host_item *landlock = blocker(r, HOST_NEED_LANDLOCK);
    const struct host_item *cause = any ? any : full;
    char limits[400];

    r->tier = any         ? HOST_TIER_NONE
              : !full     ? HOST_TIER_FULL
              : !landlock ? HOST_TIER_LANDLOCK
                          : HOST_TIER_NONE;
    r->default_run = r->tier != HOST_TIER_NONE;
    r->limits_exact = !blocker(r, HOST_NEED_LIMITS);
    r->n_lost = 0;
    snprintf(r->fix, sizeof(r->fix), "%s", cause ? cause->fix : "");

    limits_words(r, limits, sizeof(limits));
    const char *by = cause && cause->detail[0] ? cause->detail : "";
    if (r->tier == HOST_TIER_FULL)
        snprintf(r->summary, sizeof(r->summary), "full tier available; %s", limits);
    else if (r->tier == HOST_TIER_LANDLOCK)
        snprintf(r->summary, sizeof(r->summary), "landlock tier only: %s %s: %.200s; %.200s",
                 cause->title, host_state_name(cause->state), by, limits);
    else
        snprintf(r->summary, sizeof(r->summary), "no run is possible here: %s %s: %.200s%s%s%s%s",
                 cause->title, host_state_name(cause->state), by, !any ? "; " : "",
                 !any ? landlock->title : "", !any ? " " : "",
                 !any ? host_state_name(landlock->state) : "");

    if (!r->default_run) {
        add_lost(r, "every run");
        return;
    }
    bool is_full = r->tier == HOST_TIER_FULL;
    if (!is_full) {
        add_lost(r, "a root of its own: hidden paths, mounts at other places");
        add_lost(r, "hidden processes, private shared memory and loopback");
        add_lost(r, "network allowlists");
        add_lost(r, "overlay workspaces");
    }
    bool has_network = !blocker(r, HOST_NEED_NETWORK);
    for (size_t i = 0; i < r->n_items; i++) {
        const struct host_item *item = &r->items[i];
        bool matters = is_full ? item->need != HOST_NEED_NETWORK || item->required || has_network
                               : !item->full_only;
        if (item->state != HOST_WORKS && matters)
            add_lost(r, item->lost);
    }
}
