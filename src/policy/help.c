/* --help and man pages from the field table. Pure. */
#include "policy/show.h"

#include "base/util.h"
#include "policy/fields.h"
#include "policy/levels.h"

enum { HELP_COLUMN = 32, HELP_WIDTH = 80 };

/* Text in a column of its own, broken at blanks. */
static void help_wrapped(struct buf *out, size_t column, const char *text)
{
    if (column > HELP_COLUMN - 2) {
        buf_char(out, '\n');
        column = 0;
    }
    buf_printf(out, "%*s", (int)(HELP_COLUMN - column), "");
    column = HELP_COLUMN;
    while (*text) {
        size_t len = strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + len > HELP_WIDTH) {
            buf_printf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else if (column > HELP_COLUMN) {
            buf_char(out, ' ');
            column++;
        }
        buf_add(out, text, len);
        column += len;
        text += len + (text[len] == ' ');
    }
    buf_char(out, '\n');
}

static void help_own(struct buf *out, const struct options_own *own)
{
    size_t start = out->len;
    buf_str(out, "  ");
    if (own->letter)
        buf_printf(out, "-%c%s", own->letter, own->name ? ", " : "");
    if (own->name)
        buf_printf(out, "--%s", own->name);
    if (own->arg_name && own->arg == OPTIONS_OPTIONAL)
        buf_printf(out, "[=%s]", own->arg_name);
    else if (own->arg_name)
        buf_printf(out, " %s", own->arg_name);
    help_wrapped(out, out->len - start, own->doc);
}

/* "--time-limit TIME", "--keep", "--temp-dir[=PATH]" as the man page and --help show it */
static void print_flag(struct buf *out, const struct field *f)
{
    buf_printf(out, "--%s", f->flag);
    if (f->type == FT_TEMP_DIR || (f->type == FT_BOOL && f->risk == RISK_DENY))
        buf_printf(out, "[=%s]", f->arg);
    else if (f->type != FT_BOOL)
        buf_printf(out, " %s", f->arg);
}

void policy_help(const struct options_own *own, size_t n_own, bool with_policy, struct buf *out)
{
    for (size_t i = 0; i < n_own; i++) {
        if (own[i].doc)
            help_own(out, &own[i]);
    }
    if (!with_policy)
        return;
    static const struct options_own shared[] = {
        {.name = "profile",
         .arg = OPTIONS_REQUIRED,
         .arg_name = "NAME",
         .doc = "level or profile; also --sandbox=NAME"},
        {.name = "config",
         .arg = OPTIONS_REQUIRED,
         .arg_name = "FILE",
         .doc = "the project's file instead of the cordon.toml that is found"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(shared); i++)
        help_own(out, &shared[i]);
    for (size_t id = 0; id < FIELD_COUNT_; id++) {
        const struct field *f = &policy_fields[id];
        if (!*f->flag)
            continue;
        size_t start = out->len;
        buf_str(out, "  ");
        print_flag(out, f);
        help_wrapped(out, out->len - start, f->doc);
    }
}

/* scdoc reads '_' and '*' as markup. */
static void man_text(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("_*\\~#[]`", *text))
            buf_char(out, '\\');
        buf_char(out, *text);
    }
}

static const char *man_type(enum field_type type)
{
    switch (type) {
    case FT_DURATION: return "a duration as a string";
    case FT_SIZE: return "a size as a string, or bytes as an integer";
    case FT_PERCENT:
    case FT_COUNT: return "an integer";
    case FT_BOOL: return "true or false";
    case FT_TEMP_DIR: return "true, false or a path";
    case FT_NETWORK: return "true, false or a list of strings";
    case FT_ENV: return "a table, or a list of strings";
    case FT_FILES: return "a list of strings; inside [sandbox.filesystem] the key is files";
    case FT_PORTS: return "a list of integers";
    case FT_STRING:
    case FT_PATH:
    case FT_WORKSPACE:
    case FT_ENUM_NETWORK:
    case FT_ENUM_BACKEND:
    case FT_ENUM_RUNTIME:
    case FT_ENUM_TIER:
    case FT_ENUM_LOG: return "a string";
    case FT_STRINGS:
    case FT_PATHS:
    case FT_PATTERNS:
    case FT_MOUNTS:
    case FT_NET_NAMES:
    case FT_NET_PATTERNS: return "a list of strings";
    }
    return "";
}

/* What the default level or the base says for a key, or NULL. */
static const char *man_default(const char *key)
{
    const struct level_row *sources[] = {levels_base, levels_find("standard")->rows};
    for (size_t s = 0; s < ARRAY_SIZE(sources); s++) {
        for (const struct level_row *row = sources[s]; row->key; row++) {
            if (str_eq(row->key, key))
                return row->value;
        }
    }
    return NULL;
}

void policy_man_keys(enum field_table table, struct buf *out)
{
    for (size_t id = 0; id < FIELD_COUNT_; id++) {
        const struct field *f = &policy_fields[id];
        const char *fallback = man_default(f->key);
        if (f->table != table)
            continue;
        buf_char(out, '*');
        man_text(out, f->key);
        buf_str(out, "* = _");
        man_text(out, f->arg);
        buf_str(out, "_\n\t");
        man_text(out, f->doc);
        buf_str(out, ". ");
        buf_char(out, (char)(man_type(f->type)[0] & ~0x20));
        man_text(out, man_type(f->type) + 1);
        buf_str(out, ".");
        if (fallback) {
            buf_str(out, " Default: ");
            man_text(out, fallback);
            buf_str(out, ".");
        }
        if (*f->flag) {
            buf_str(out, " Flag: ");
            buf_printf(out, "*--%s*.", f->flag);
        }
        buf_str(out, "\n\n");
    }
}

void policy_man_options(struct buf *out)
{
    for (size_t id = 0; id < FIELD_COUNT_; id++) {
        const struct field *f = &policy_fields[id];
        if (!*f->flag)
            continue;
        _cleanup_buf_ struct buf flag = BUF_INIT(256);
        print_flag(&flag, f);
        buf_char(out, '*');
        man_text(out, flag.data ? flag.data : "");
        buf_str(out, "*\n\t");
        man_text(out, f->doc);
        buf_str(out, ".\n\n");
    }
}
