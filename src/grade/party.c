/* Starting and ending one side. Runs in the supervisor. */
#include "grade/party.h"

#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "lang/source.h"

#define PARTY_PROCESSES 64
#define PARTY_OUTPUT ((uint64_t)64 << 10)

/* Reads texts from standard input: so many modules, each a name and its source, then what to do
 * with them, which may read more. */
static const char party_boot[] = "import os,sys\n"
                                 "def r(n):\n"
                                 " b=b''\n"
                                 " while len(b)<n:\n"
                                 "  c=os.read(0,n-len(b))\n"
                                 "  if not c: os._exit(0)\n"
                                 "  b+=c\n"
                                 " return b\n"
                                 "def s(): return r(int.from_bytes(r(4),'little'))\n"
                                 "for i in range(r(1)[0]):\n"
                                 " n=s().decode();m=type(sys)(n);sys.modules[n]=m\n"
                                 " exec(compile(s(),n+'.py','exec',dont_inherit=True),m.__dict__)\n"
                                 "exec(s())\n";

static const char party_tests_main[] = "import grade_tests\ngrade_tests.main({})\n";
static const char party_user_main[] =
    "import grade_wire,grade_user\n"
    "o=grade_wire.decode(s());t=s();g=s();d=None\n"
    "if g:\n"
    " d={'__name__':'guard'};exec(compile(g,'guard.py','exec',dont_inherit=True),d)\n"
    "f=grade_user.main\n"
    "del r,i,n,m,s,g,grade_wire,grade_user\n"
    "f(o,t,d)\n";

static char *const party_argv[] = {(char *)"python3", (char *)"-I", (char *)"-c",
                                   (char *)party_boot, NULL};

struct party_module {
    const char *name, *text;
};

static const struct party_module party_modules_tests[] = {
    {"grade_wire", grade_text_wire},     {"grade_side", grade_text_side},
    {"grade_tests", grade_text_tests},   {"grade_plain", grade_text_plain},
    {"grade_pytest", grade_text_pytest}, {"grade_doctest", grade_text_doctest},
};
static const struct party_module party_modules_user[] = {
    {"grade_wire", grade_text_wire},
    {"grade_user", grade_text_user},
};

void party_send_text(struct party *p, const char *data, size_t len)
{
    unsigned char size[4] = {(unsigned char)len, (unsigned char)(len >> 8),
                             (unsigned char)(len >> 16), (unsigned char)(len >> 24)};
    channel_send(&p->channel, 0, size, sizeof(size));
    channel_send(&p->channel, 0, data, len);
}

void party_send(struct party *p, char kind, const void *data, size_t len)
{
    channel_send(&p->channel, kind, data, len);
}

static void party_send_program(struct party *p, enum party_role role)
{
    bool tests = role == PARTY_TESTS;
    const struct party_module *modules = tests ? party_modules_tests : party_modules_user;
    char n = (char)(tests ? ARRAY_SIZE(party_modules_tests) : ARRAY_SIZE(party_modules_user));
    channel_send(&p->channel, 0, &n, 1);
    for (int i = 0; i < n; i++) {
        party_send_text(p, modules[i].name, strlen(modules[i].name));
        party_send_text(p, modules[i].text, strlen(modules[i].text));
    }
    const char *last = tests ? party_tests_main : party_user_main;
    party_send_text(p, last, strlen(last));
}

/* ---- what it may use ---- */

static void party_number(struct policy *p, enum field_id id, uint64_t num)
{
    p->values[id] = (struct policy_value){.set = true, .num = num, .written = (char *)""};
}

/* The wall clock of both is that of the suite and is kept by the grader. The tests' side serves
 * many suites; it shares no place with the submission that either can write to. */
static void party_derive(struct party *p, enum party_role role, const struct policy *from)
{
    static const enum field_id none[] = {FIELD_CPU_TIME,      FIELD_KILL_ON_OUTPUT_LIMIT,
                                         FIELD_NETWORK,       FIELD_ALLOW_NETWORK,
                                         FIELD_ALLOW_DOMAINS, FIELD_ALLOW_PATTERNS,
                                         FIELD_PUBLISH,       FIELD_ALLOW_HOST_PORT,
                                         FIELD_LOG_NETWORK,   FIELD_OUTPUT,
                                         FIELD_WORKSPACE,     FIELD_UNSAFE_HOST_NETWORK,
                                         FIELD_ALLOW_WRITE,   FIELD_MOUNTS};
    p->policy = *from;
    p->policy.values[FIELD_TIME_LIMIT] = (struct policy_value){0};
    p->policy.values[FIELD_ALLOWED_BINARIES] = (struct policy_value){0};
    if (role != PARTY_TESTS)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        p->policy.values[none[i]] = (struct policy_value){0};
    if (policy_num(&p->policy, FIELD_PROCESSES) < PARTY_PROCESSES)
        party_number(&p->policy, FIELD_PROCESSES, PARTY_PROCESSES);
    party_number(&p->policy, FIELD_MAX_OUTPUT, PARTY_OUTPUT);
}

/* ---- callbacks ---- */

static bool party_on_frame(struct channel *c, char kind, const char *data, size_t len)
{
    struct party *p = c->owner;
    return p->on_frame(p, kind, data, len);
}

static void party_on_channel_end(struct channel *c, const char *breach)
{
    struct party *p = c->owner;
    p->breach = breach;
    if (breach)
        run_cancel(&p->run);
    if (!p->gone)
        p->on_end(p);
}

static void party_on_start(void *data, struct guest *guest)
{
    struct party *p = ((struct run_job *)data)->data;
    /* a failure shows as a side that says nothing: its channel is closed */
    if (channel_attach(&p->channel, guest) < 0)
        p->breach = "its pipes cannot be watched";
}

static void party_on_done(struct run_job *run)
{
    struct party *p = run->data;
    p->gone = true;
    channel_drain(&p->channel);
    channel_close(&p->channel);
    p->on_gone(p);
}

int party_start(struct party *p, enum party_role role, const struct party_place *place,
                struct cordon_err *err)
{
    party_derive(p, role, place->policy);
    const struct policy *policy = &p->policy;
    if (policy_has(policy, FIELD_VENV)) {
        struct policy *own = arena_alloc(&p->arena, sizeof(*own));
        if (!own)
            return err_nomem(err, "grade");
        if (lang_venv(policy, place->vars, &p->arena, own, err) < 0)
            return -1;
        policy = own;
    }
    channel_init(&p->channel, place->loop);
    p->channel.on_frame = party_on_frame;
    p->channel.on_end = party_on_channel_end;
    p->channel.owner = p;
    p->run = (struct run_job){
        .loop = place->loop,
        .host = *place->host,
        .policy = policy,
        .argv = (char *const *)party_argv,
        .on_done = party_on_done,
        .data = p,
        .options = {.sinks = {-1, -1},
                    .keep_output = true,
                    .stdin_fd = -1,
                    .on_start = party_on_start},
    };
    party_send_program(p, role);
    p->started = true;
    if (run_start(&p->run, err) < 0) {
        party_done(p);
        return -1;
    }
    return 0;
}

void party_stop(struct party *p)
{
    if (p->started && !p->gone)
        run_cancel(&p->run);
}

void party_done(struct party *p)
{
    if (!p->started)
        return;
    p->gone = true;
    channel_done(&p->channel);
    run_done(&p->run);
    arena_done(&p->arena);
    p->started = false;
}
