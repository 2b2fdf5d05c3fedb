/* TOML on stdin, the tagged JSON of the toml-test suite on stdout; exit 1 with the error on stderr
 * when the text is not TOML 1.0, 2 when this program itself fails. Used by test_toml_suite.py. */
#include "policy/toml.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void print_text(const char *data, size_t len)
{
    putchar('"');
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void print_date(const struct toml_datetime *dt)
{
    printf("%04d-%02u-%02u", dt->year, dt->month, dt->day);
}

static void print_time(const struct toml_datetime *dt)
{
    printf("%02u:%02u:%02u", dt->hour, dt->minute, dt->second);
    if (dt->nanosecond)
        printf(".%09" PRIu32, dt->nanosecond);
}

static void print_offset(int minutes)
{
    int east = abs(minutes);
    if (minutes == 0)
        putchar('Z');
    else
        printf("%c%02d:%02d", minutes < 0 ? '-' : '+', east / 60, east % 60);
}

static void print_float(double value)
{
    if (isnan(value))
        printf("nan");
    else if (isinf(value))
        printf("%s", value < 0 ? "-inf" : "inf");
    else
        printf("%.17g", value);
}

static void print_node(const struct toml_node *node);

static void print_children(const struct toml_node *node)
{
    putchar(node->type == TOML_TABLE ? '{' : '[');
    for (const struct toml_node *child = toml_first(node); child; child = child->next) {
        if (node->type == TOML_TABLE) {
            print_text(child->key, child->key_len);
            putchar(':');
        }
        print_node(child);
        if (child->next)
            putchar(',');
    }
    putchar(node->type == TOML_TABLE ? '}' : ']');
}

static void print_scalar(const struct toml_node *node)
{
    const struct toml_datetime *dt = &node->u.datetime;
    switch (node->type) {
    case TOML_INTEGER: printf("integer\",\"value\":\"%" PRId64, node->u.integer); break;
    case TOML_FLOAT:
        printf("float\",\"value\":\"");
        print_float(node->u.real);
        break;
    case TOML_BOOL: printf("bool\",\"value\":\"%s", node->u.boolean ? "true" : "false"); break;
    case TOML_OFFSET_DATETIME:
    case TOML_LOCAL_DATETIME:
        printf("%s\",\"value\":\"",
               node->type == TOML_LOCAL_DATETIME ? "datetime-local" : "datetime");
        print_date(dt);
        putchar('T');
        print_time(dt);
        if (node->type == TOML_OFFSET_DATETIME)
            print_offset(dt->offset_minutes);
        break;
    case TOML_LOCAL_DATE:
        printf("date-local\",\"value\":\"");
        print_date(dt);
        break;
    case TOML_LOCAL_TIME:
        printf("time-local\",\"value\":\"");
        print_time(dt);
        break;
    case TOML_STRING:
    case TOML_ARRAY:
    case TOML_TABLE: break;
    }
}

/* Recursion is bounded by TOML_DEPTH_MAX. */
static void print_node(const struct toml_node *node)
{
    if (node->type == TOML_TABLE || node->type == TOML_ARRAY) {
        print_children(node);
    } else if (node->type == TOML_STRING) {
        printf("{\"type\":\"string\",\"value\":");
        print_text(node->u.string.data, node->u.string.len);
        putchar('}');
    } else {
        printf("{\"type\":\"");
        print_scalar(node);
        printf("\"}");
    }
}

int main(void)
{
    static char text[TOML_SIZE_MAX + 1];
    size_t len = fread(text, 1, sizeof(text), stdin);
    if (ferror(stdin)) {
        perror("stdin");
        return 2;
    }

    struct toml_doc *doc;
    struct cordon_err err;
    if (toml_parse("stdin", text, len, &doc, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.code == CORDON_ERR_CONFIG ? 1 : 2;
    }
    print_node(toml_root(doc));
    putchar('\n');
    toml_doc_free(doc);
    return fflush(stdout) == 0 ? 0 : 2;
}
