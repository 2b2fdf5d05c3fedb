/* Splitting of command lines by the field table and a verb's own table. Pure; runs in the command.
 */
#include "policy/options.h"

#include "base/err.h"
#include "base/util.h"
#include "policy/fields.h"
#include "policy/units.h"
#include "policy/value.h"

/* Options about the policy as a whole; they have no row in the field table. */
enum shared_id { SHARED_PROFILE, SHARED_SANDBOX, SHARED_CONFIG, SHARED_LOG };
static const struct options_own shared[] = {
    {.name = "profile", .arg = OPTIONS_REQUIRED, .id = SHARED_PROFILE},
    {.name = "sandbox", .arg = OPTIONS_OPTIONAL, .id = SHARED_SANDBOX},
    {.name = "config", .arg = OPTIONS_REQUIRED, .id = SHARED_CONFIG},
    {.name = "sandbox-log", .arg = OPTIONS_REQUIRED, .id = SHARED_LOG},
};

struct parser {
    const struct options_own *own;
    size_t n_own;
    bool with_policy;
    struct options *out;
    struct cordon_err *err;
};

/* What an option word was found to be. */
struct found {
    const struct options_own *own;    /* a row of the verb's table, or */
    const struct options_own *shared; /* a row of the table above, or */
    enum field_id field;              /* a row of the field table */
    enum options_arg arg;
};

static bool same_name(const char *name, const char *text, size_t len)
{
    return name && strlen(name) == len && memcmp(name, text, len) == 0;
}

static bool find_long(const struct parser *p, const char *text, size_t len, struct found *ret)
{
    for (size_t i = 0; i < p->n_own; i++) {
        if (same_name(p->own[i].name, text, len)) {
            *ret = (struct found){.own = &p->own[i], .arg = p->own[i].arg};
            return true;
        }
    }
    for (size_t i = 0; p->with_policy && i < ARRAY_SIZE(shared); i++) {
        if (same_name(shared[i].name, text, len)) {
            *ret = (struct found){.shared = &shared[i], .arg = shared[i].arg};
            return true;
        }
    }
    for (unsigned id = 0; p->with_policy && id < FIELD_COUNT_; id++) {
        const struct field *f = &policy_fields[id];
        if (len > 0 && same_name(f->flag, text, len)) {
            bool optional = fields_value_is_optional(f->type);
            *ret = (struct found){.field = (enum field_id)id,
                                  .arg = optional ? OPTIONS_OPTIONAL : OPTIONS_REQUIRED};
            return true;
        }
    }
    return false;
}

static int unknown_option(const struct parser *p, const char *word)
{
    char name[64];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
    struct fields_near near = fields_near_start(name);
    for (size_t i = 0; i < p->n_own; i++) {
        if (p->own[i].name)
            fields_near_try(&near, p->own[i].name);
    }
    for (size_t i = 0; p->with_policy && i < ARRAY_SIZE(shared); i++)
        fields_near_try(&near, shared[i].name);
    for (size_t id = 0; p->with_policy && id < FIELD_COUNT_; id++) {
        if (*policy_fields[id].flag)
            fields_near_try(&near, policy_fields[id].flag);
    }
    if (near.best)
        return err_set(p->err, CORDON_ERR_USAGE, "usage", 0,
                       "unknown option '%.*s' (did you mean '--%s'?)", (int)strcspn(word, "="),
                       word, near.best);
    return err_set(p->err, CORDON_ERR_USAGE, "usage", 0, "unknown option '%.*s'",
                   (int)strcspn(word, "="), word);
}

static void record(struct parser *p, const struct found *found, const char *value)
{
    struct options *out = p->out;
    if (found->own) {
        out->own[out->n_own++] = (struct options_hit){.id = found->own->id, .value = value};
        return;
    }
    if (!found->shared) {
        out->settings[out->n_settings++] =
            (struct policy_setting){.name = policy_fields[found->field].flag, .value = value};
        return;
    }
    switch ((enum shared_id)found->shared->id) {
    case SHARED_SANDBOX: /* bare: a sandbox is what there is anyway */
        if (value)
            out->profile = value;
        break;
    case SHARED_PROFILE: out->profile = value; break;
    case SHARED_CONFIG: out->config_file = value; break;
    case SHARED_LOG:
        out->settings[out->n_settings++] =
            (struct policy_setting){.name = policy_fields[FIELD_LOG].flag, .value = value};
        break;
    }
}

/* Words used up: 1, 2, or -1. */
static int long_option(struct parser *p, char **words, int n_words)
{
    const char *word = words[0];
    const char *equals = strchr(word, '=');
    size_t len = equals ? (size_t)(equals - word - 2) : strlen(word + 2);
    struct found found;

    if (!find_long(p, word + 2, len, &found))
        return unknown_option(p, word);
    if (found.arg == OPTIONS_NONE && equals)
        return err_set(p->err, CORDON_ERR_USAGE, "usage", 0, "option '--%.*s' takes no value",
                       (int)len, word + 2);
    if (found.arg == OPTIONS_REQUIRED && !equals) {
        if (n_words < 2)
            return err_set(p->err, CORDON_ERR_USAGE, "usage", 0, "option '%s' needs a value", word);
        record(p, &found, words[1]);
        return 2;
    }
    record(p, &found, equals ? equals + 1 : NULL);
    return 1;
}

/* One letter per word: -i, -j4, -j 4. */
static int short_option(struct parser *p, char **words, int n_words)
{
    const char *word = words[0];
    for (size_t i = 0; i < p->n_own; i++) {
        struct found found = {.own = &p->own[i]};
        if (!p->own[i].letter || p->own[i].letter != word[1])
            continue;
        if (p->own[i].arg == OPTIONS_NONE && word[2])
            break;
        if (p->own[i].arg == OPTIONS_REQUIRED && !word[2]) {
            if (n_words < 2)
                return err_set(p->err, CORDON_ERR_USAGE, "usage", 0, "option '%s' needs a value",
                               word);
            record(p, &found, words[1]);
            return 2;
        }
        record(p, &found, word[2] ? word + 2 : NULL);
        return 1;
    }
    return err_set(p->err, CORDON_ERR_USAGE, "usage", 0, "unknown option '%s'", word);
}

int options_parse(int argc, char **argv, const struct options_own *own, size_t n_own,
                  bool with_policy, struct options *ret_options, struct cordon_err *err)
{
    struct options out = {0};
    size_t words = argc > 0 ? (size_t)argc : 1;
    out.settings = calloc(words, sizeof(*out.settings));
    out.own = calloc(words + n_own, sizeof(*out.own)); /* with room for the environment's */
    if (!out.settings || !out.own) {
        options_done(&out);
        return err_nomem(err, "usage");
    }

    struct parser p = {own, n_own, with_policy, &out, err};
    int i = 1;
    while (i < argc && argv[i][0] == '-' && argv[i][1]) {
        if (str_eq(argv[i], "--")) {
            out.has_dashes = true;
            i++;
            break;
        }
        int used = argv[i][1] == '-' ? long_option(&p, argv + i, argc - i)
                                     : short_option(&p, argv + i, argc - i);
        if (used < 0) {
            options_done(&out);
            policy_err_clean(err);
            return -1;
        }
        i += used;
    }
    out.argc = i < argc ? argc - i : 0;
    out.argv = argv + MIN(i, argc);
    *ret_options = out;
    return 0;
}

static int options_variable(struct options *options, const struct options_own *row,
                            char *const *vars, struct cordon_err *err)
{
    char name[FIELDS_ENV_MAX];
    const char *value = fields_env_of_flag(row->name, name, sizeof(name))
                            ? value_env(vars, name, strlen(name))
                            : NULL;
    if (!value)
        return 0;
    if (!*value)
        return err_set(err, CORDON_ERR_CONFIG, "policy", 0, "%s: the value is empty", name);
    if (row->arg == OPTIONS_NONE) {
        bool wanted = false;
        const char *wrong = units_bool(value, &wanted);
        if (wrong)
            return err_set(err, CORDON_ERR_CONFIG, "policy", 0, "%s: '%.200s' %s", name, value,
                           wrong);
        if (!wanted)
            return 0;
        value = NULL;
    }
    options->own[options->n_own++] =
        (struct options_hit){.id = row->id, .value = value, .from_environ = true};
    return 0;
}

int options_environ(struct options *options, const struct options_own *own, size_t n_own,
                    char *const *vars, struct cordon_err *err)
{
    for (size_t i = 0; i < n_own; i++) {
        if (own[i].name && !options_has(options, own[i].id) &&
            options_variable(options, &own[i], vars, err) < 0) {
            policy_err_clean(err);
            return -1;
        }
    }
    return 0;
}

void options_done(struct options *options)
{
    free(options->settings);
    free(options->own);
    *options = (struct options){0};
}

bool options_has(const struct options *options, int id)
{
    for (size_t i = 0; i < options->n_own; i++) {
        if (options->own[i].id == id)
            return true;
    }
    return false;
}

bool options_is_variable(const struct options *options, int id)
{
    for (size_t i = options->n_own; i-- > 0;) {
        if (options->own[i].id == id)
            return options->own[i].from_environ;
    }
    return false;
}

const char *options_get(const struct options *options, int id)
{
    for (size_t i = options->n_own; i-- > 0;) {
        if (options->own[i].id == id)
            return options->own[i].value;
    }
    return NULL;
}

struct policy_input options_input(const struct options *options, char *const *vars)
{
    return (struct policy_input){
        .settings = options->settings,
        .n_settings = options->n_settings,
        .profile = options->profile,
        .config_file = options->config_file,
        .environ = vars,
    };
}
