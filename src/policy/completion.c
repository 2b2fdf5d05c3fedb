/* Shell completions from the verbs' tables and the field table. Pure. */
#include "policy/show.h"

#include "base/err.h"
#include "base/util.h"
#include "policy/fields.h"
#include "policy/levels.h"

/* One option as a completion shows it, whatever table it comes from. */
struct entry {
    const char *name; /* or NULL */
    char letter;
    bool takes_value;         /* as a separate word */
    bool is_path;             /* the value is a path of the host */
    const char *const *words; /* possible values, or NULL */
    const char *arg;
    const char *doc;
};

typedef void entry_fn(const struct entry *entry, struct buf *out);

static bool type_is_path(enum field_type type)
{
    return type == FT_PATH || type == FT_PATHS || type == FT_PATTERNS || type == FT_WORKSPACE ||
           type == FT_MOUNTS;
}

static void each_option(const struct show_verb *verb, entry_fn *fn, struct buf *out)
{
    static const struct entry shared[] = {
        {.name = "profile", .takes_value = true, .arg = "NAME", .doc = "level or profile"},
        {.name = "sandbox", .doc = "accepted; with =NAME the same as --profile"},
        {.name = "sandbox-log", .takes_value = true, .arg = "LEVEL", .doc = "the same as --log"},
        {.name = "config",
         .takes_value = true,
         .is_path = true,
         .arg = "FILE",
         .doc = "the project's configuration file"},
    };
    for (size_t i = 0; i < verb->n_own; i++) {
        const struct options_own *own = &verb->own[i];
        struct entry e = {.name = own->name,
                          .letter = own->letter,
                          .takes_value = own->arg == OPTIONS_REQUIRED,
                          .is_path = own->arg_name && (str_eq(own->arg_name, "FILE") ||
                                                       str_eq(own->arg_name, "DIR") ||
                                                       str_eq(own->arg_name, "PATH")),
                          .arg = own->arg_name,
                          .doc = own->doc};
        if (own->doc)
            fn(&e, out);
    }
    for (size_t i = 0; verb->with_policy && i < ARRAY_SIZE(shared); i++)
        fn(&shared[i], out);
    for (size_t id = 0; verb->with_policy && id < FIELD_COUNT_; id++) {
        const struct field *f = &policy_fields[id];
        struct entry e = {.name = f->flag,
                          .takes_value = !fields_value_is_optional(f->type),
                          .is_path = type_is_path(f->type),
                          .words = fields_words(f->type),
                          .arg = f->arg,
                          .doc = f->doc};
        if (*f->flag)
            fn(&e, out);
    }
}

/* Texts of ours hold no newline; a single quote is the only thing that ends a quoted word. */
static void quoted(struct buf *out, const char *text)
{
    buf_char(out, '\'');
    for (; *text; text++) {
        if (*text == '\'')
            buf_str(out, "'\\''");
        else
            buf_char(out, *text);
    }
    buf_char(out, '\'');
}

/* ---- bash -------------------------------------------------------------------------------------
 */

static void bash_name(const struct entry *e, struct buf *out)
{
    if (e->name)
        buf_printf(out, " --%s", e->name);
    if (e->letter)
        buf_printf(out, " -%c", e->letter);
}

static void bash_values(const struct entry *e, struct buf *out)
{
    if (!e->name || !e->takes_value)
        return;
    buf_printf(out, "        --%s)", e->name);
    if (e->words) {
        buf_str(out, " COMPREPLY=($(compgen -W '");
        for (const char *const *w = e->words; *w; w++)
            buf_printf(out, "%s%s", w == e->words ? "" : " ", *w);
        buf_str(out, "' -- \"$cur\")); return ;;\n");
    } else if (str_eq(e->name, "profile")) {
        buf_str(out, " COMPREPLY=($(compgen -W \"$(cordon profile ls 2>/dev/null | cut -f1)\" -- "
                     "\"$cur\")); return ;;\n");
    } else if (e->is_path) {
        buf_str(out, " COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n");
    } else {
        buf_str(out, " return ;;\n");
    }
}

static void complete_bash(const struct show_verb *verbs, size_t n, struct buf *out)
{
    buf_str(out, "# bash completion for cordon\n_cordon() {\n"
                 "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                 "    local verb=${COMP_WORDS[1]}\n"
                 "    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s%s", i ? " " : "", verbs[i].name);
    /* what follows `workspace run` is a line of `run` */
    buf_str(out,
            "' -- \"$cur\"))\n        return\n    fi\n"
            "    [[ $verb${COMP_WORDS[2]} == workspacerun ]] && ((COMP_CWORD > 2)) && verb=run\n"
            "    case $verb in\n");
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "    %s)\n        case $prev in\n", verbs[i].name);
        each_option(&verbs[i], bash_values, out);
        buf_str(out, "        esac\n        COMPREPLY=($(compgen -W '");
        for (const char *const *w = verbs[i].words; w && *w; w++)
            buf_printf(out, "%s ", *w);
        each_option(&verbs[i], bash_name, out);
        buf_str(out, "' -- \"$cur\"))\n        [[ $cur == -* ]] || COMPREPLY+=($(compgen -f -- "
                     "\"$cur\")) ;;\n");
    }
    buf_str(out, "    esac\n}\ncomplete -o filenames -F _cordon cordon\n");
}

/* ---- zsh --------------------------------------------------------------------------------------
 */

/* The text between brackets of an _arguments specification. */
static void zsh_doc(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            buf_str(out, "'\\''");
        else if (strchr("[]:\\", *text))
            buf_printf(out, "\\%c", *text);
        else
            buf_char(out, *text);
    }
}

/* After the option's own name, up to the end of the specification. */
static void zsh_rest(const struct entry *e, struct buf *out)
{
    buf_char(out, '[');
    zsh_doc(out, e->doc);
    buf_char(out, ']');
    if (e->takes_value) {
        buf_char(out, ':');
        zsh_doc(out, e->arg ? e->arg : "VALUE");
        buf_char(out, ':');
        if (e->words) {
            buf_char(out, '(');
            for (const char *const *w = e->words; *w; w++)
                buf_printf(out, "%s%s", w == e->words ? "" : " ", *w);
            buf_char(out, ')');
        } else if (e->name && str_eq(e->name, "profile")) {
            buf_str(out, "{compadd -- $(cordon profile ls 2>/dev/null | cut -f1)}");
        } else if (e->is_path) {
            buf_str(out, "_files");
        }
    }
    buf_str(out, "' \\\n");
}

static void zsh_option(const struct entry *e, struct buf *out)
{
    if (e->name) {
        buf_printf(out, "            '*--%s%s", e->name, e->takes_value ? "=" : "");
        zsh_rest(e, out);
    }
    if (e->letter) {
        buf_printf(out, "            '*-%c%s", e->letter, e->takes_value ? "+" : "");
        zsh_rest(e, out);
    }
}

static void complete_zsh(const struct show_verb *verbs, size_t n, struct buf *out)
{
    buf_str(out, "#compdef cordon\n_cordon() {\n    local -a verbs\n    verbs=(\n");
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "        '%s:", verbs[i].name);
        zsh_doc(out, verbs[i].doc);
        buf_str(out, "'\n");
    }
    buf_str(out,
            "    )\n    if ((CURRENT == 2)); then\n        _describe verb verbs\n        return\n"
            "    fi\n    local verb=$words[2]\n"
            "    [[ $verb$words[3] == workspacerun ]] && ((CURRENT > 3)) && verb=run\n"
            "    case $verb in\n");
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "    %s)\n        _arguments -S \\\n", verbs[i].name);
        each_option(&verbs[i], zsh_option, out);
        if (verbs[i].words) {
            buf_str(out, "            '2:command:(");
            for (const char *const *w = verbs[i].words; *w; w++)
                buf_printf(out, "%s%s", w == verbs[i].words ? "" : " ", *w);
            buf_str(out, ")' \\\n");
        }
        buf_str(out, "            '*:file:_files' ;;\n");
    }
    buf_str(out, "    esac\n}\n_cordon \"$@\"\n");
}

/* ---- fish -------------------------------------------------------------------------------------
 */

/* fish has no closures: the lines are made without their condition, which is put in afterwards. */
static void fish_option(const struct entry *e, struct buf *out)
{
    buf_str(out, "complete -c cordon $on");
    if (e->name)
        buf_printf(out, " -l %s", e->name);
    if (e->letter)
        buf_printf(out, " -s %c", e->letter);
    if (e->takes_value)
        buf_str(out, e->is_path ? " -rF" : " -x");
    if (e->words) {
        buf_str(out, " -a '");
        for (const char *const *w = e->words; *w; w++)
            buf_printf(out, "%s%s", w == e->words ? "" : " ", *w);
        buf_char(out, '\'');
    } else if (e->name && str_eq(e->name, "profile")) {
        buf_str(out, " -a '(cordon profile ls 2>/dev/null | cut -f1)'");
    }
    buf_str(out, " -d ");
    quoted(out, e->doc);
    buf_char(out, '\n');
}

static void complete_fish(const struct show_verb *verbs, size_t n, struct buf *out)
{
    buf_str(out, "# fish completion for cordon\n");
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "complete -c cordon -n __fish_use_subcommand -f -a %s -d ", verbs[i].name);
        quoted(out, verbs[i].doc);
        buf_char(out, '\n');
    }
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "set -l on -n '__fish_seen_subcommand_from %s'\n", verbs[i].name);
        for (const char *const *w = verbs[i].words; w && *w; w++)
            buf_printf(out, "complete -c cordon $on -f -a %s\n", *w);
        each_option(&verbs[i], fish_option, out);
    }
}

int policy_completions(const char *shell, const struct show_verb *verbs, size_t n, struct buf *out,
                       struct cordon_err *err)
{
    if (str_eq(shell, "bash"))
        complete_bash(verbs, n, out);
    else if (str_eq(shell, "zsh"))
        complete_zsh(verbs, n, out);
    else if (str_eq(shell, "fish"))
        complete_fish(verbs, n, out);
    else
        return err_set(err, CORDON_ERR_USAGE, "usage", 0, "'%s' is not one of bash, zsh, fish",
                       shell);
    return 0;
}
