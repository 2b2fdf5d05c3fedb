/* Starting and ending one side. Runs in the supervisor. */
#include "grade/party.h"

#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "lang/source.h"

/* Reads texts from standard input: so many modules, each a name and its source, then what to do
 * with them, which may read more. */
#define PARTY_READ                                                                                 \
    "def r(n):\n"                                                                                  \
    " b=b''\n"                                                                                     \
    " while len(b)<n:\n"                                                                           \
    "  c=posix.read(0,n-len(b))\n"                                                                 \
    "  if not c: posix._exit(0)\n"                                                                 \
    "  b+=c\n"                                                                                     \
    " return b\n"                                                                                  \
    "def s(): return r(int.from_bytes(r(4),'little'))\n"
static const char party_boot[] = "import posix,sys\n" PARTY_READ "k=r(1)[0]\n"
                                 "for i in range(k&127):\n"
                                 " n=s().decode();m=type(sys)(n);sys.modules[n]=m;t=s()\n"
                                 " if k&128:\n"
                                 "  import marshal;c=marshal.loads(t)\n"
                                 " else: c=compile(t,n+'.py','exec',dont_inherit=True)\n"
                                 " exec(c,m.__dict__)\n"
                                 "exec(s())\n";

static const char party_tests_main[] = "import grade_tests\n"
                                       "p=[('grade_wire',s()),('grade_user',s())]\n"
                                       "grade_tests.main(p,s()==b'many')\n";
/* -S leaves out what the site module does, which costs a third of the start: the same by hand,
 * without .pth files. */
static const char party_user_main[] =
    "import builtins,grade_wire,grade_user\n"
    "if not hasattr(builtins,'exit'):\n"
    " import _sitebuiltins as q\n"
    " v='/lib/python%d.%d/'%sys.version_info[:2]\n"
    " sys.path+=[sys.prefix+'/local'+v+'dist-packages',sys.prefix+'/lib/python3/dist-packages',"
    "sys.prefix+v+'site-packages']\n"
    " builtins.exit=q.Quitter('exit','Ctrl-D (i.e. EOF)')\n"
    " builtins.quit=q.Quitter('quit','Ctrl-D (i.e. EOF)')\n"
    " builtins.help=q._Helper()\n"
    "o=grade_wire.decode(s());t=s();g=s();d=None\n"
    "if g:\n"
    " d={'__name__':'guard'};exec(compile(g,'guard.py','exec',dont_inherit=True),d)\n"
    "f=grade_user.main\n"
    "for n in list(globals()):\n"
    " if n not in ('f','o','t','d') and n[:2]!='__': del globals()[n]\n"
    "f(o,t,d)\n";

/* A virtual environment is the site module's doing. */
static char *const party_argv[] = {(char *)"python3", (char *)"-I", (char *)"-c",
                                   (char *)party_boot, NULL};
static char *const party_argv_lean[] = {(char *)"python3", (char *)"-I",       (char *)"-S",
                                        (char *)"-c",      (char *)party_boot, NULL};

struct party_module {
    const char *name, *text;
};

static const struct party_module party_modules_tests[] = {
    {"grade_wire", grade_text_wire},     {"grade_side", grade_text_side},
    {"grade_words", grade_text_words},   {"grade_tests", grade_text_tests},
    {"grade_tame", grade_text_tame},     {"grade_plain", grade_text_plain},
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

static void party_send_module(struct party *p, const struct party_module *m)
{
    party_send_text(p, m->name, strlen(m->name));
    party_send_text(p, m->text, strlen(m->text));
}

static void party_send_tests_program(struct party *p, bool many)
{
    const char n = (char)ARRAY_SIZE(party_modules_tests);
    channel_send(&p->channel, 0, &n, 1);
    for (size_t i = 0; i < ARRAY_SIZE(party_modules_tests); i++)
        party_send_module(p, &party_modules_tests[i]);
    party_send_text(p, party_tests_main, strlen(party_tests_main));
    for (size_t i = 0; i < ARRAY_SIZE(party_modules_user); i++)
        party_send_text(p, party_modules_user[i].text, strlen(party_modules_user[i].text));
    party_send_text(p, many ? "many" : "", many ? 4 : 0);
}

/* code: length and bytes of each module, as the tests' side wrote it. */
static void party_send_user_program(struct party *p, const struct buf *code)
{
    char n = (char)ARRAY_SIZE(party_modules_user);
    bool ready = code && code->len > 0;
    if (ready)
        n = (char)(n | 128);
    channel_send(&p->channel, 0, &n, 1);
    for (size_t i = 0, at = 0; i < ARRAY_SIZE(party_modules_user); i++) {
        if (!ready) {
            party_send_module(p, &party_modules_user[i]);
            continue;
        }
        uint32_t len;
        memcpy(&len, code->data + at, sizeof(len));
        party_send_text(p, party_modules_user[i].name, strlen(party_modules_user[i].name));
        party_send_text(p, code->data + at + sizeof(len), len);
        at += sizeof(len) + len;
    }
    party_send_text(p, party_user_main, strlen(party_user_main));
}

/* ---- the warm interpreter ---- */

static void party_pack(struct buf *out, const char *data, size_t len)
{
    unsigned char size[4] = {(unsigned char)len, (unsigned char)(len >> 8),
                             (unsigned char)(len >> 16), (unsigned char)(len >> 24)};
    buf_add(out, size, sizeof(size));
    buf_add(out, data, len);
}

/* Loads the library as a module; it has the runner's modules as byte code, and their text serves
 * where that was made for another Python. The last text says what to become. */
static const char party_zygote_boot[] =
    "import posix,sys,_imp,marshal\n" PARTY_READ
    "z=_imp.create_dynamic(type(sys.__spec__)('cordon_grade_zygote',None,origin=s().decode()))\n"
    "from _frozen_importlib_external import MAGIC_NUMBER as v\n"
    "b=z.code(int.from_bytes(v[:2],'little'));b=marshal.loads(b) if b else {}\n"
    "for i in range(r(1)[0]):\n"
    " n=s().decode();m=type(sys)(n);sys.modules[n]=m;t=s()\n"
    " exec(marshal.loads(b[n]) if b else compile(t,n+'.py','exec',dont_inherit=True),m.__dict__)\n"
    "b=t=None\n"
    "getattr(m,s().decode())(z,s)\n";

static void party_pack_module(struct buf *out, const struct party_module *m)
{
    party_pack(out, m->name, strlen(m->name));
    party_pack(out, m->text, strlen(m->text));
}

static struct zygote *party_zygote(enum zygote_role role, const struct party_module *modules,
                                   size_t n_modules, const struct policy *policy,
                                   const struct policy_input *input)
{
    static const struct party_module last = {"grade_zygote", grade_text_zygote};
    const char *become = role == ZYGOTE_TESTS ? "desks" : "submissions";
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    char library[4096];
    struct zygote *z = NULL;
    struct cordon_err err;
    if (zygote_library(library, sizeof(library)) < 0)
        return NULL;
    party_pack(&text, library, strlen(library));
    buf_char(&text, (char)(n_modules + 1));
    for (size_t i = 0; i < n_modules; i++)
        party_pack_module(&text, &modules[i]);
    party_pack_module(&text, &last);
    party_pack(&text, become, strlen(become));
    struct zygote_program program = {party_zygote_boot, text.data, text.len};
    if (text.failed || zygote_open(role, policy, input, &program, &z, &err) < 0)
        return NULL;
    return z;
}

void party_warm_up(const struct policy *policy, const struct policy_input *input,
                   struct party_warm *ret)
{
    ret->desks = party_zygote(ZYGOTE_TESTS, party_modules_tests, ARRAY_SIZE(party_modules_tests),
                              policy, input);
    if (ret->desks)
        ret->submissions = party_zygote(ZYGOTE_SUBMISSION, party_modules_user,
                                        ARRAY_SIZE(party_modules_user), policy, input);
}

bool party_is_warm(const struct party_warm *w)
{
    return zygote_is_alive(w->desks) && zygote_is_alive(w->submissions);
}

void party_cool_down(struct party_warm *w)
{
    zygote_hang_up(w->submissions);
    zygote_hang_up(w->desks);
    zygote_close(w->submissions);
    zygote_close(w->desks);
    *w = (struct party_warm){0};
}

/* An interpreter that was there before its guest has no environment of the guest's yet. */
void party_environ(const struct party *p, struct jsonw *j)
{
    jsonw_open(j, NULL, '{');
    jsonw_open(j, "d", '[');
    for (char **e = p->run.plan->env; *e; e++) {
        const char *equals = strchr(*e, '=');
        if (!equals || !jsonw_is_utf8(*e, strlen(*e)))
            continue;
        jsonw_bytes(j, NULL, *e, (size_t)(equals - *e));
        jsonw_str(j, NULL, equals + 1);
    }
    jsonw_close(j, ']');
    jsonw_close(j, '}');
}

static int party_send_environ(struct party *p, struct cordon_err *err)
{
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    struct jsonw j = {.out = &text};
    party_environ(p, &j);
    if (text.failed)
        return err_nomem(err, "grade");
    party_send_text(p, text.data, text.len);
    return 0;
}

bool party_is_code(const char *data, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(party_modules_user); i++) {
        uint32_t n;
        if (len < sizeof(n))
            return false;
        memcpy(&n, data, sizeof(n));
        if (n > len - sizeof(n))
            return false;
        data += sizeof(n) + n;
        len -= sizeof(n) + n;
    }
    return len == 0;
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
        party_stop(p);
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
    bool is_tests = role != PARTY_SUBMISSION;
    zygote_policy(role == PARTY_TESTS ? ZYGOTE_TESTS : ZYGOTE_SUBMISSION, place->policy,
                  &p->policy);
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
        .vars = place->vars,
        .policy = policy,
        .argv = is_tests || policy_has(policy, FIELD_VENV) ? party_argv : party_argv_lean,
        .on_done = party_on_done,
        .data = p,
        .options = {.sinks = {-1, -1},
                    .keep_output = is_tests,
                    .stdin_fd = -1,
                    .on_start = party_on_start},
    };
    p->warm = place->warm;
    if (p->warm)
        p->run.backend = &backend_zygote[role == PARTY_TESTS ? ZYGOTE_TESTS : ZYGOTE_SUBMISSION];
    else if (is_tests)
        party_send_tests_program(p, place->many);
    else
        party_send_user_program(p, place->code);
    p->started = true;
    if (run_start(&p->run, err) < 0 ||
        (p->warm && role == PARTY_TESTS && party_send_environ(p, err) < 0)) {
        party_done(p);
        return -1;
    }
    return 0;
}

void party_stop(struct party *p)
{
    p->stopped = true;
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
