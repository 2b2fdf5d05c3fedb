/* Memory of a policy: values, items, origins. Pure data, owned by whoever resolved it. */
#include "policy/policy.h"

#include <limits.h>

#include "base/err.h"
#include "base/utf8.h"
#include "base/util.h"
#include "policy/config.h"
#include "policy/nodevalue.h"

void policy_item_done(struct policy_item *item)
{
    free(item->text);
    free(item->extra);
    free(item->written);
    free(item->data);
    free(item->origin.name);
    *item = (struct policy_item){0};
}

void policy_value_done(struct policy_value *value)
{
    for (size_t i = 0; i < value->n_items; i++)
        policy_item_done(&value->items[i]);
    free(value->items);
    free(value->text);
    free(value->written);
    free(value->origin.name);
    *value = (struct policy_value){0};
}

int policy_value_push(struct policy_value *value, struct policy_item *item)
{
    /* Grows at 0, 1, 2, 4 ...: most lists have one item. */
    size_t n = value->n_items;
    if ((n & (n - 1)) == 0) {
        struct policy_item *items = reallocarray(value->items, n ? n * 2 : 1, sizeof(*items));
        if (!items)
            return -1;
        value->items = items;
    }
    value->items[value->n_items++] = *item;
    *item = (struct policy_item){0};
    return 0;
}

void policy_value_drop(struct policy_value *value, size_t index)
{
    policy_item_done(&value->items[index]);
    value->n_items--;
    memmove(&value->items[index], &value->items[index + 1],
            (value->n_items - index) * sizeof(*value->items));
    /* policy_value_push counts on a capacity of the next power of two: still true, never less. */
}

int policy_origin_copy(const struct origin *from, struct origin *ret)
{
    struct origin copy = *from;
    copy.name = strdup(from->name);
    if (!copy.name)
        return -1;
    *ret = copy;
    return 0;
}

void policy_origin_text(const struct origin *origin, char *ret_text, size_t size)
{
    if (origin->line)
        snprintf(ret_text, size, "%s:%u", origin->name, origin->line);
    else
        snprintf(ret_text, size, "%s", origin->name ? origin->name : "default");
}

void policy_origin_place(const struct origin *origin, char *ret_text, size_t size)
{
    if (origin->line && origin->column)
        snprintf(ret_text, size, "%s:%u:%u", origin->name, origin->line, origin->column);
    else
        policy_origin_text(origin, ret_text, size);
}

int policy_err_place(const struct origin *origin, struct cordon_err *err)
{
    char where[PATH_MAX + 32];
    if (!err || err->code != CORDON_ERR_CONFIG)
        return -1;
    policy_origin_place(origin, where, sizeof(where));
    return err_prefix(err, "%s", where);
}

void policy_err_clean(struct cordon_err *err)
{
    if (err) {
        utf8_clean(err->message, false);
        utf8_clean(err->hint, false);
    }
}

void policy_language_done(struct policy_language *language)
{
    free(language->name);
    nodevalue_strings_free(language->suffixes);
    nodevalue_strings_free(language->aliases);
    nodevalue_strings_free(language->compile);
    nodevalue_strings_free(language->run);
    nodevalue_strings_free(language->version);
    nodevalue_strings_free(language->env);
    free(language->origin.name);
}

void policy_free(struct policy *policy)
{
    if (!policy)
        return;
    for (size_t i = 0; i < FIELD_COUNT_; i++)
        policy_value_done(&policy->values[i]);
    for (size_t i = 0; i < policy->n_languages; i++)
        policy_language_done(&policy->languages[i]);
    free(policy->languages);
    nodevalue_strings_free(policy->test_command);
    free(policy->config_file);
    free(policy->user_file);
    free(policy->profile);
    free(policy);
}
